//! Mail over SMTP against peers that do what a test tells them to: they hang, put off, refuse, cut, say more than they
//! were asked. What a message says, and when it is sent, is tested elsewhere.

#[path = "support/mail.rs"]
mod mail;
#[path = "support/receiver.rs"]
mod receiver;
#[path = "support/tls_receiver.rs"]
mod tls_receiver;

use std::net::IpAddr;
use std::time::Duration;
use std::{io, sync::Arc};

use futures::future::BoxFuture;
use hooklog::delivery::Client;
use hooklog::delivery::client::{Login, Lookup, MailFault, Options, Relay, Security};
use hooklog::delivery::guard::Policy;
use mail::{At, Do, Peer, Tls, relay};
use tls_receiver::{Authority, Good};

const MESSAGE: &[u8] = b"Subject: hello\r\n\r\n.a line that begins with a dot\r\n";

/// Every name leads here.
struct Here;

impl Lookup for Here {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            match host.as_str() {
                "nowhere.test" => Err(io::ErrorKind::NotFound.into()),
                _ => Ok(vec![[127, 0, 0, 1].into()]),
            }
        })
    }
}

fn client(options: Options) -> Client {
    Client::with_lookup(Policy::default(), options, Arc::new(Here)).expect("a client")
}

async fn send(relay: &Relay) -> Result<(), MailFault> {
    send_to(relay, "owner@acme.example").await
}

async fn send_to(relay: &Relay, to: &str) -> Result<(), MailFault> {
    let (from, to) = ("hooks@product.example".parse().unwrap(), to.parse().expect("an address"));
    client(Options::default()).send_mail(relay, &from, &to, MESSAGE).await
}

/// A peer that does one thing at one place, and all else well.
async fn peer(place: At, act: Do) -> Peer {
    Peer::start(move |_, at| if at == place { act.clone() } else { Do::Well }).await
}

#[tokio::test]
async fn a_message_arrives_as_it_was_written() {
    let mut peer = peer(At::End, Do::Well).await;
    send(&relay(peer.address.port())).await.expect("it is taken");
    let letter = peer.next().await;
    assert_eq!(letter.from, "MAIL FROM:<hooks@product.example>");
    assert_eq!(letter.to, ["RCPT TO:<owner@acme.example>"]);
    assert_eq!(letter.data.as_bytes().strip_suffix(b"\r\n").unwrap_or_default(), MESSAGE);
    assert!(!letter.safe && letter.auth.is_none());
}

/// What a server says, and whether the message, its address or the server is at fault.
#[tokio::test]
async fn every_answer_has_its_meaning() {
    let cases = [
        (At::Greeting, "554 no service\r\n", MailFault::Relay("554 no service".into())),
        (At::Greeting, "421 too busy\r\n", MailFault::Relay("421 too busy".into())),
        (At::Hello, "550 go away\r\n", MailFault::Relay("550 go away".into())),
        (At::From, "451 later\r\n", MailFault::Relay("451 later".into())),
        (At::From, "553 5.1.8 no such sender\r\n", MailFault::Relay("553 5.1.8 no such sender".into())),
        (At::To, "450 4.2.0 greylisted\r\n", MailFault::Later("450 4.2.0 greylisted".into())),
        (At::To, "421 4.3.2 going down\r\n", MailFault::Relay("421 4.3.2 going down".into())),
        (At::To, "550 5.1.1 no such user\r\n", MailFault::Refused("550 5.1.1 no such user".into())),
        (At::To, "530 5.7.0 log in first\r\n", MailFault::Relay("530 5.7.0 log in first".into())),
        (At::Data, "452 4.3.1 full\r\n", MailFault::Later("452 4.3.1 full".into())),
        (At::End, "451 4.7.1 try later\r\n", MailFault::Later("451 4.7.1 try later".into())),
        (
            At::End,
            "554-5.7.1 this is\r\n554 5.7.1 spam\r\n",
            MailFault::Refused("554 5.7.1 this is spam".into()),
        ),
    ];
    for (place, words, expected) in cases {
        let peer = peer(place, Do::Say(words)).await;
        assert_eq!(send(&relay(peer.address.port())).await, Err(expected), "{words:?} at {place:?}");
    }
}

#[tokio::test]
async fn what_a_server_says_is_bounded_and_cannot_steer_a_terminal() {
    const LONG: &str = concat!(
        "550 \u{1b}[31mred\u{7} ",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n"
    );
    let peer = peer(At::To, Do::Say(LONG)).await;
    let Err(MailFault::Refused(why)) = send(&relay(peer.address.port())).await else { panic!("refused") };
    assert!(why.starts_with("550 [31mred xxx") && why.chars().count() == 200, "{why}");
    // What never ends is not read to its end.
    let endless = peer_that_talks("250-x\r\n").await;
    assert!(matches!(send(&relay(endless)).await, Err(MailFault::Relay(_))));
    let nonsense = peer_that_talks("hello there\r\n").await;
    assert!(matches!(send(&relay(nonsense)).await, Err(MailFault::Relay(_))));
}

/// Says the same for ever.
async fn peer_that_talks(words: &'static str) -> u16 {
    use tokio::io::AsyncWriteExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a peer");
        while stream.write_all(words.as_bytes()).await.is_ok() {}
    });
    port
}

#[tokio::test]
async fn a_server_that_hangs_or_cuts_is_down_wherever_it_does() {
    for place in [At::Greeting, At::Hello, At::From, At::To, At::Data, At::End] {
        let hangs = peer(place, Do::Hang).await;
        let relay = Relay { timeout: Duration::from_millis(300), ..relay(hangs.address.port()) };
        let late = MailFault::Relay("no answer within 300 ms".into());
        assert_eq!(send(&relay).await, Err(late), "{place:?}");
        let cuts = peer(place, Do::Cut).await;
        let relay = Relay { timeout: Duration::from_secs(60), ..mail::relay(cuts.address.port()) };
        assert!(matches!(send(&relay).await, Err(MailFault::Relay(_))), "{place:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_down() {
    let nobody = relay(mail::free_port());
    let Err(MailFault::Relay(why)) = send(&nobody).await else { panic!("nobody listens") };
    assert!(why.contains("refused"), "{why}");
    let nowhere = Relay { host: "nowhere.test".into(), ..nobody };
    assert_eq!(send(&nowhere).await, Err(MailFault::Relay("the name does not exist".into())));
}

#[tokio::test]
async fn tls_comes_first_and_is_checked() {
    let authority = Authority::named("Ours");
    let options = || Options { extra_ca: Some(authority.pem_file()), ..Options::default() };
    let (from, to) = ("h@product.example".parse().unwrap(), "o@acme.example".parse().unwrap());
    let login = Some(Login { username: "hooks".into(), password: "p4ss".to_owned().into() });
    let shown = authority.receiver("mail.test", Good::Now);
    let other = authority.receiver("other.test", Good::Now);
    type Make = fn(Arc<rustls::ServerConfig>) -> Tls;
    let ways: [(Security, Make); 2] = [(Security::Tls, Tls::AtOnce), (Security::StartTls, Tls::Later)];
    for (security, tls) in ways {
        let mut peer = Peer::with_tls(tls(shown.clone()), |_, _| Do::Well).await;
        let relay =
            Relay { host: "mail.test".into(), security, login: login.clone(), ..relay(peer.address.port()) };
        client(options()).send_mail(&relay, &from, &to, MESSAGE).await.expect("it is taken");
        let letter = peer.next().await;
        assert!(letter.safe, "{security:?}");
        // \0hooks\0p4ss
        assert_eq!(letter.auth.as_deref(), Some("AUTH PLAIN AGhvb2tzAHA0c3M="), "{security:?}");
        // An authority that nobody trusts, and a certificate for another name: nothing is said.
        let unknown = client(Options::default()).send_mail(&relay, &from, &to, MESSAGE).await;
        assert!(matches!(unknown, Err(MailFault::Relay(_))), "{unknown:?}");
        let mut wrong = Peer::with_tls(tls(other.clone()), |_, _| Do::Well).await;
        let relay = Relay { port: wrong.address.port(), ..relay };
        let sent = client(options()).send_mail(&relay, &from, &to, MESSAGE).await;
        assert!(matches!(sent, Err(MailFault::Relay(_))), "{sent:?}");
        assert!(peer.so_far().is_empty() && wrong.so_far().is_empty());
    }
}

/// A server in the middle takes STARTTLS out, refuses it, or puts in words of its own before it: no message and no
/// password is said in clear, and nothing that was said in clear is believed later.
#[tokio::test]
async fn starttls_is_not_stripped() {
    let login = Some(Login { username: "hooks".into(), password: "p4ss".to_owned().into() });
    let config = Authority::named("Ours").receiver("mail.test", Good::Now);
    let cases: [(Tls, At, Do, &str); 3] = [
        (Tls::Never, At::Hello, Do::Well, "the mail server offers no STARTTLS"),
        (
            Tls::Later(config.clone()),
            At::StartTls,
            Do::Say("454 not now\r\n"),
            "the mail server said `454 not now`",
        ),
        (
            Tls::Later(config),
            At::StartTls,
            Do::Say("220 go on\r\n250 ok\r\n"),
            "the mail server said `220 go on 250 ok`",
        ),
    ];
    for (tls, place, act, why) in cases {
        let mut peer =
            Peer::with_tls(tls, move |_, at| if at == place { act.clone() } else { Do::Well }).await;
        let relay = Relay {
            host: "mail.test".into(),
            security: Security::StartTls,
            login: login.clone(),
            ..relay(peer.address.port())
        };
        assert_eq!(send(&relay).await, Err(MailFault::Relay(why.into())));
        assert!(peer.so_far().is_empty());
    }
}

#[tokio::test]
async fn a_password_that_is_refused_is_the_operators_to_mend() {
    let peer = peer(At::Auth, Do::Say("535 5.7.8 wrong password\r\n")).await;
    let login = Some(Login { username: "hooks".into(), password: "wrong".to_owned().into() });
    let relay = Relay { login, ..relay(peer.address.port()) };
    assert_eq!(send(&relay).await, Err(MailFault::Relay("535 5.7.8 wrong password".into())));
    assert!(!format!("{relay:?}").contains("wrong"));
}

#[tokio::test]
async fn an_address_beyond_ascii_wants_a_server_for_it() {
    let plain = peer(At::End, Do::Well).await;
    let Err(MailFault::Refused(why)) = send_to(&relay(plain.address.port()), "böb@acme.example").await
    else {
        panic!("it offers no SMTPUTF8")
    };
    assert!(why.contains("SMTPUTF8"), "{why}");
    let mut able = peer(At::Hello, Do::Say("250-peer.test\r\n250 SMTPUTF8\r\n")).await;
    send_to(&relay(able.address.port()), "böb@acme.example").await.expect("it is taken");
    assert_eq!(able.next().await.from, "MAIL FROM:<hooks@product.example> SMTPUTF8");
}
