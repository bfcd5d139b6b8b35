//! A name server on loopback that answers each name as a test says, over UDP and TCP.
#![allow(dead_code)]

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// What is said about a name.
#[derive(Clone, Debug)]
pub enum Say {
    /// These addresses, good for so many seconds. An answer that is too long for UDP is cut there.
    Are(Vec<IpAddr>, u32),
    /// It is another name for this one (CNAME).
    Is(String),
    /// There is no such name.
    NoSuchName,
    /// It cannot be said.
    ServerFailed,
    /// Nothing, ever.
    Silent,
    /// These addresses, once [`NameServer::say_late`] is called.
    Late(Vec<IpAddr>),
}

/// The name server. It lives as long as the test's runtime.
pub struct NameServer {
    /// Where it listens.
    pub address: SocketAddr,
    questions: Arc<Mutex<Vec<String>>>,
    /// What was not said yet, and to whom.
    late: Late,
    udp: Arc<UdpSocket>,
}

/// Answers that are not sent yet, and to whom they go.
type Late = Arc<Mutex<Vec<(Vec<u8>, SocketAddr)>>>;

type Sayer = Arc<dyn Fn(&str) -> Say + Send + Sync>;

impl NameServer {
    /// One that says this about a name, which comes in lower case and without a full stop at its end.
    pub async fn saying(say: impl Fn(&str) -> Say + Send + Sync + 'static) -> NameServer {
        let say: Sayer = Arc::new(say);
        let (udp, tcp) = sockets().await;
        let address = udp.local_addr().expect("its address");
        let udp = Arc::new(udp);
        let (questions, late) = (Arc::<Mutex<Vec<_>>>::default(), Late::default());
        let (socket, sayer, heard, kept) = (udp.clone(), say.clone(), questions.clone(), late.clone());
        tokio::spawn(async move {
            let mut buffer = [0; 1500];
            while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
                let (name, _) = question(&buffer[..len]);
                let later = matches!(sayer(&name), Say::Late(_));
                heard.lock().expect("no panic").push(name);
                let Some(answer) = reply(&buffer[..len], &sayer, 512) else { continue };
                if later {
                    kept.lock().expect("no panic").push((answer, from));
                } else {
                    socket.send_to(&answer, from).await.ok();
                }
            }
        });
        tokio::spawn(async move {
            while let Ok((stream, _)) = tcp.accept().await {
                tokio::spawn(over_tcp(stream, say.clone()));
            }
        });
        NameServer { address, questions, late, udp }
    }

    /// How many questions came in over UDP.
    pub fn asked(&self) -> usize {
        self.questions.lock().expect("no panic").len()
    }

    /// The names that were asked for over UDP.
    pub fn names(&self) -> Vec<String> {
        self.questions.lock().expect("no panic").clone()
    }

    /// Says what was not said so far.
    pub async fn say_late(&self) {
        let late = std::mem::take(&mut *self.late.lock().expect("no panic"));
        for (answer, to) in late {
            self.udp.send_to(&answer, to).await.ok();
        }
    }
}

/// Both at one port. What is free for one may be taken for the other.
async fn sockets() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let udp = UdpSocket::bind(("127.0.0.1", 0)).await.expect("a port");
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().expect("its address")).await {
            return (udp, tcp);
        }
    }
    panic!("no port is free for both");
}

async fn over_tcp(mut stream: TcpStream, say: Sayer) -> Option<()> {
    loop {
        let len = stream.read_u16().await.ok()?;
        let mut question = vec![0; usize::from(len)];
        stream.read_exact(&mut question).await.ok()?;
        let answer = reply(&question, &say, usize::from(u16::MAX))?;
        stream.write_u16(answer.len() as u16).await.ok()?;
        stream.write_all(&answer).await.ok()?;
    }
}

/// The name that is asked for, and where it ends.
fn question(bytes: &[u8]) -> (String, usize) {
    let mut at = 12;
    let mut labels = Vec::new();
    while bytes[at] > 0 {
        let label = &bytes[at + 1..=at + usize::from(bytes[at])];
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += 1 + label.len();
    }
    (labels.join("."), at)
}

/// RFC 1035 §4.1: the question comes back, then the answers to it.
fn reply(question: &[u8], say: &Sayer, bytes_max: usize) -> Option<Vec<u8>> {
    let (name, at) = self::question(question);
    let end = at + 5;
    let four = question[at + 2] == 1;
    let (code, records, ttl): (u8, Vec<IpAddr>, u32) = match say(&name) {
        Say::Silent => return None,
        Say::Is(other) => {
            let name: Vec<u8> =
                other.split('.').flat_map(|l| [&[l.len() as u8], l.as_bytes()].concat()).chain([0]).collect();
            let mut out =
                [&question[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], &question[12..end]].concat();
            out.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, name.len() as u8]);
            return Some([out, name].concat());
        }
        Say::NoSuchName => (3, vec![], 0),
        Say::ServerFailed => (2, vec![], 0),
        Say::Late(all) => (0, all.into_iter().filter(|a| a.is_ipv4() == four).collect(), 60),
        Say::Are(all, ttl) => (0, all.into_iter().filter(|a| a.is_ipv4() == four).collect(), ttl),
    };
    let record_bytes = if four { 16 } else { 28 };
    let cut = end + records.len() * record_bytes > bytes_max;
    let records = if cut { vec![] } else { records };
    let mut out = question[..2].to_vec();
    out.extend([0x81 | if cut { 2 } else { 0 }, 0x80 | code, 0, 1]);
    out.extend((records.len() as u16).to_be_bytes());
    let denied = records.is_empty() && !cut && code != 2;
    out.extend([0, u8::from(denied), 0, 0]);
    out.extend(&question[12..end]);
    for record in records {
        // The name: the one at byte 12.
        out.extend([0xc0, 12, 0, question[at + 2], 0, 1]);
        out.extend(ttl.to_be_bytes());
        match record {
            IpAddr::V4(a) => out.extend([&[0, 4], a.octets().as_slice()].concat()),
            IpAddr::V6(a) => out.extend([&[0, 16], a.octets().as_slice()].concat()),
        }
    }
    if denied {
        // The zone's SOA, without which nobody may believe it for long: 60 s.
        out.extend([0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 60, 0, 22, 0, 0]);
        out.extend([[0; 4]; 4].concat());
        out.extend([0, 0, 0, 60]);
    }
    Some(out)
}
