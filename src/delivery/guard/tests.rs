//! The guard against every vector of addresses and URLs.

use proptest::prelude::*;

use super::address::DENIED_V4;
use super::*;

fn allowing(lines: &[&str]) -> Policy {
    let allow = lines.iter().map(|line| line.parse().expect("a line")).collect();
    Policy { allow, allow_http: true, ..Policy::default() }
}

#[test]
fn every_address_of_the_table_is_judged_as_written() {
    let table = include_str!("../../../fixtures/guard/addresses.txt");
    let mut count = [0, 0];
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let (verdict, address) = line.split_once(' ').expect("two words");
        let address: IpAddr = address.parse().expect("an address");
        let allowed = judge(address).is_ok();
        assert_eq!(verdict, if allowed { "allow" } else { "deny" }, "{address}");
        count[usize::from(allowed)] += 1;
    }
    assert_eq!(count, [77, 30]);
}

#[test]
fn a_refusal_names_the_range() {
    let refusal = judge("10.1.2.3".parse().expect("an address")).expect_err("private");
    insta::assert_snapshot!(refusal, @"10.1.2.3 is not allowed: 10.0.0.0/8 is private; an operator can allow it by CIDR");
    let refusal = judge("::ffff:169.254.169.254".parse().expect("an address")).expect_err("mapped");
    insta::assert_snapshot!(refusal, @"::ffff:169.254.169.254 is not allowed: 169.254.0.0/16 is link-local (and holds clouds' metadata services); an operator can allow it by CIDR");
    let refusal = judge("fd00:ec2::254".parse().expect("an address")).expect_err("unique local");
    insta::assert_snapshot!(refusal, @"fd00:ec2::254 is not allowed: fd00:ec2::254/128 is outside 2000::/3, the only public IPv6 range; an operator can allow it by CIDR");
}

#[test]
fn one_bad_address_condemns_the_whole_answer() {
    let policy = allowing(&["127.0.0.1:8080", "10.1.0.0/16"]);
    let check = |text: &str, port| {
        let addresses: Vec<IpAddr> = text.split(' ').map(|a| a.parse().expect("an address")).collect();
        policy.check_addresses(&addresses, port, &[]).is_ok()
    };
    assert!(check("8.8.8.8 2606:4700:4700::1111", Some(443)));
    assert!(!check("8.8.8.8 10.0.0.1", Some(443)));
    assert!(!check("10.0.0.1 8.8.8.8", Some(443)));
    assert!(check("8.8.8.8 10.1.0.1", Some(443)));
    assert!(check("127.0.0.1 ::ffff:127.0.0.1", Some(8080)));
    assert!(!check("127.0.0.1", Some(8081)));
    assert!(!check("127.0.0.1", None));
    assert!(check("10.1.0.1", None));
    assert!(!check("127.0.0.1 ::1", Some(8080)));
}

#[test]
fn our_own_addresses_are_refused_unless_allowed() {
    let own: Vec<IpAddr> =
        ["8.8.4.4", "2a00:1::7", "127.0.0.1"].map(|a| a.parse().expect("an address")).to_vec();
    let check = |policy: &Policy, address: &str| {
        policy.check_addresses(&[address.parse().expect("an address")], Some(443), &own)
    };
    let strict = allowing(&[]);
    insta::assert_snapshot!(check(&strict, "8.8.4.4").expect_err("ours"), @"8.8.4.4 is not allowed: 8.8.4.4/32 is this machine's own address; an operator can allow it by CIDR");
    for address in ["2a00:1::7", "::ffff:8.8.4.4", "127.0.0.1"] {
        check(&strict, address).expect_err(address);
    }
    for address in ["8.8.8.8", "2a00:1::8"] {
        check(&strict, address).expect(address);
    }
    let policy = allowing(&["8.8.4.4:443", "127.0.0.1"]);
    for address in ["8.8.4.4", "127.0.0.1"] {
        check(&policy, address).expect(address);
    }
}

#[test]
fn allow_lines_read_and_write_alike() {
    for line in ["10.0.0.0/8", "127.0.0.1/32:8080", "fd00::/8", "[::1/128]:8080"] {
        assert_eq!(line.parse::<Allow>().expect("a line").to_string(), line);
    }
    assert_eq!("127.0.0.1:80".parse::<Allow>().expect("a line").to_string(), "127.0.0.1/32:80");
    assert_eq!("[::1]".parse::<Allow>().expect("a line").to_string(), "::1/128");
    assert_eq!("10.9.8.7/8".parse::<Allow>().expect("a line").to_string(), "10.0.0.0/8");
    for line in ["", "localhost", "10.0.0.0/33", "1.2.3.4:0", "1.2.3.4:x", "[::1]x", "[::1", "*", "::/129"] {
        assert!(line.parse::<Allow>().is_err(), "{line}");
    }
}

/// One line a URL: what it is stored as, or why not.
fn picture(policy: &Policy, urls: &[&str]) -> String {
    let line = |url: &&str| match policy.check_url(url) {
        Ok(checked) => format!("{url:?} -> {checked}\n"),
        Err(refusal) => {
            let name = format!("{refusal:?}");
            let name = name.split(['(', ' ']).next().unwrap_or("");
            format!("{url:?} {name}: {refusal}\n")
        }
    };
    urls.iter().map(line).collect()
}

#[test]
fn urls_under_the_default_policy() {
    insta::assert_snapshot!(picture(&Policy::default(), &[
        "https://hooks.customer.com",
        "https://HOOKS.Customer.com:443/a/../b?x=%2F&y=a+b",
        "https://xn--bcher-kva.com:8443/h",
        "https://a_b.customer.com/",
        "http://customer.com/",
        "ftp://customer.com/",
        "file:///etc/passwd",
        "gopher://customer.com/",
        "customer.com/hook",
        "https://customer.com:8080/",
        "https://customer.com:0/",
        "https://customer.com:65536/",
        "https://user:pw@customer.com/",
        "https://@customer.com/",
        "https://customer.com/#part",
        "https://cust omer.com/",
        "https://cust\tomer.com/",
        "https://customer.com/\r\n",
        "https://customer.com\\@evil.com/",
        "https://b\u{fc}cher.com/",
        "https://customer.com./",
        "https://a..b.com/",
        "https://.com/",
        "https://hooks/",
        "https://localhost/",
        "https://sub.localhost/",
        "https://printer.local/",
        "https://metadata.google.internal/",
        "https://router.lan/",
        "https://box.home.arpa/",
        "https://a.test/",
        "https://customer.example/",
        "https://1.1.1.1/",
        "https://[2606:4700:4700::1111]/",
        "https:customer.com/",
        "https:/customer.com/",
        "https:///customer.com/",
        "https://",
        "",
    ]), @r#"
    "https://hooks.customer.com" -> https://hooks.customer.com/
    "https://HOOKS.Customer.com:443/a/../b?x=%2F&y=a+b" -> https://hooks.customer.com/b?x=%2F&y=a+b
    "https://xn--bcher-kva.com:8443/h" -> https://xn--bcher-kva.com:8443/h
    "https://a_b.customer.com/" -> https://a_b.customer.com/
    "http://customer.com/" HttpNotAllowed: plain `http` is not allowed: use `https`, or ask the operator to allow `http`
    "ftp://customer.com/" Scheme: the scheme `ftp` is not allowed: use `https`
    "file:///etc/passwd" Scheme: the scheme `file` is not allowed: use `https`
    "gopher://customer.com/" Scheme: the scheme `gopher` is not allowed: use `https`
    "customer.com/hook" Unparsable: not a URL: relative URL without a base
    "https://customer.com:8080/" Port: port 8080 is not allowed: use one of [443, 8443], or ask the operator
    "https://customer.com:0/" Port: port 0 is not allowed: use one of [443, 8443], or ask the operator
    "https://customer.com:65536/" Unparsable: not a URL: invalid port number
    "https://user:pw@customer.com/" UserInfo: the URL holds a user name or password: use a header instead
    "https://@customer.com/" UserInfo: the URL holds a user name or password: use a header instead
    "https://customer.com/#part" Fragment: the URL holds a fragment (`#…`), which is never sent: remove it
    "https://cust omer.com/" Space: the URL holds a space: write it as `%20`
    "https://cust\tomer.com/" ControlCharacter: the URL holds a control character (tab, line break or the like): remove it
    "https://customer.com/\r\n" ControlCharacter: the URL holds a control character (tab, line break or the like): remove it
    "https://customer.com\\@evil.com/" Backslash: the URL holds a backslash: write `/`, or `%5C` if it is meant
    "https://bücher.com/" NonAscii: the URL holds a character beyond ASCII: write the host in punycode (`xn--…`) and the rest percent-encoded
    "https://customer.com./" TrailingDot: the host name ends in a full stop: remove it
    "https://a..b.com/" EmptyLabel: the host name has an empty label: remove the extra full stop
    "https://.com/" EmptyLabel: the host name has an empty label: remove the extra full stop
    "https://hooks/" SingleLabel: `hooks` has no domain: use a full host name
    "https://localhost/" Localhost: `localhost` is not allowed: use a public host name, or ask the operator to allow 127.0.0.1 or ::1
    "https://sub.localhost/" ReservedName: names under `localhost` are reserved or local: use a public host name
    "https://printer.local/" ReservedName: names under `local` are reserved or local: use a public host name
    "https://metadata.google.internal/" ReservedName: names under `internal` are reserved or local: use a public host name
    "https://router.lan/" ReservedName: names under `lan` are reserved or local: use a public host name
    "https://box.home.arpa/" ReservedName: names under `arpa` are reserved or local: use a public host name
    "https://a.test/" ReservedName: names under `test` are reserved or local: use a public host name
    "https://customer.example/" ReservedName: names under `example` are reserved or local: use a public host name
    "https://1.1.1.1/" Literal: the host is the IP address 1.1.1.1: use a host name, or ask the operator to allow the address and port
    "https://[2606:4700:4700::1111]/" Literal: the host is the IP address 2606:4700:4700::1111: use a host name, or ask the operator to allow the address and port
    "https:customer.com/" Slashes: after the scheme come `://` and a host, nothing else
    "https:/customer.com/" Slashes: after the scheme come `://` and a host, nothing else
    "https:///customer.com/" Slashes: after the scheme come `://` and a host, nothing else
    "https://" Unparsable: not a URL: empty host
    "" Unparsable: not a URL: relative URL without a base
    "#);
    let long = format!("https://customer.com/{}", "a".repeat(URL_BYTES_MAX));
    assert!(matches!(Policy::default().check_url(&long), Err(UrlRefusal::TooLong(2069))));
    let label = format!("https://{}.com/", "a".repeat(64));
    assert!(matches!(Policy::default().check_url(&label), Err(UrlRefusal::LabelTooLong(64))));
    let host = format!("https://{}com/", "abcdefghi.".repeat(26));
    assert!(matches!(Policy::default().check_url(&host), Err(UrlRefusal::HostTooLong(263))));
}

#[test]
fn spellings_that_other_guards_let_through() {
    // Plain http is allowed here, so that only the trick itself can be what is refused.
    insta::assert_snapshot!(picture(&allowing(&[]), &[
        "http://ex.com\\@evil.com/",
        "http://ex.com@evil.com/",
        "http:///ex.com/",
        "http://\u{24d4}\u{24e7}.com/",
        "http://ex\u{3002}com/",
        "http://%31%32%37.0.0.1/",
        "http://ex%41mple.com/",
        "http://127%2e0%2e0%2e1/",
        "http://0x7f.0.0.0x1/",
        "http://0177.0.0.1/",
        "http://2130706433/",
        "http://127.1/",
        "http://1.1/",
        "http://4294967295/",
        "http://0/",
        "http://127.0.0.1./",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[::1]/",
        "http://[::1",
        "http://[::1].evil.com/",
        "http://::1/",
        "http://[fe80::1%25eth0]/",
        "http://256.1.1.1/",
        "http://4294967296/",
        "http://localhost%00.ex.com/",
        "http://user@/",
        "http://1.2.3.4.5/",
        "http://127.0.0.1.nip.io/",
        "HTTP://ex.com/",
    ]), @r#"
    "http://ex.com\\@evil.com/" Backslash: the URL holds a backslash: write `/`, or `%5C` if it is meant
    "http://ex.com@evil.com/" UserInfo: the URL holds a user name or password: use a header instead
    "http:///ex.com/" Slashes: after the scheme come `://` and a host, nothing else
    "http://ⓔⓧ.com/" NonAscii: the URL holds a character beyond ASCII: write the host in punycode (`xn--…`) and the rest percent-encoded
    "http://ex。com/" NonAscii: the URL holds a character beyond ASCII: write the host in punycode (`xn--…`) and the rest percent-encoded
    "http://%31%32%37.0.0.1/" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
    "http://ex%41mple.com/" HostSpelling: the host is read as `example.com`: write it so
    "http://127%2e0%2e0%2e1/" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
    "http://0x7f.0.0.0x1/" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
    "http://0177.0.0.1/" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
    "http://2130706433/" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
    "http://127.1/" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
    "http://1.1/" Literal: the host is the IP address 1.0.0.1: use a host name, or ask the operator to allow the address and port
    "http://4294967295/" Literal: the host is the IP address 255.255.255.255: use a host name, or ask the operator to allow the address and port
    "http://0/" Literal: the host is the IP address 0.0.0.0: use a host name, or ask the operator to allow the address and port
    "http://127.0.0.1./" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
    "http://[::ffff:a9fe:a9fe]/" Literal: the host is the IP address ::ffff:169.254.169.254: use a host name, or ask the operator to allow the address and port
    "http://[::1]/" Literal: the host is the IP address ::1: use a host name, or ask the operator to allow the address and port
    "http://[::1" Unparsable: not a URL: invalid IPv6 address
    "http://[::1].evil.com/" Unparsable: not a URL: invalid IPv6 address
    "http://::1/" Unparsable: not a URL: empty host
    "http://[fe80::1%25eth0]/" Unparsable: not a URL: invalid IPv6 address
    "http://256.1.1.1/" Unparsable: not a URL: invalid IPv4 address
    "http://4294967296/" Unparsable: not a URL: invalid IPv4 address
    "http://localhost%00.ex.com/" Unparsable: not a URL: invalid international domain name
    "http://user@/" Unparsable: not a URL: empty host
    "http://1.2.3.4.5/" Unparsable: not a URL: invalid IPv4 address
    "http://127.0.0.1.nip.io/" -> http://127.0.0.1.nip.io/
    "HTTP://ex.com/" -> http://ex.com/
    "#);
}

#[test]
fn allowed_addresses_may_have_any_port_or_the_one_that_is_named() {
    insta::assert_snapshot!(picture(&allowing(&["127.0.0.1:9000", "10.0.0.0/8"]), &[
        "http://127.0.0.1:9000/h",
        "http://127.0.0.1:9001/h",
        "http://127.1:9000/h",
        "http://localhost:9000/h",
        "http://localhost:9001/h",
        "http://10.2.3.4:1/",
        "http://10.2.3.4:0/",
        "http://[::ffff:10.2.3.4]:7/",
        "http://hooks.customer.com:8080/",
        "http://hooks.customer.com:9000/",
    ]), @r#"
    "http://127.0.0.1:9000/h" -> http://127.0.0.1:9000/h
    "http://127.0.0.1:9001/h" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
    "http://127.1:9000/h" HostSpelling: the host is read as `127.0.0.1`: write it so
    "http://localhost:9000/h" -> http://localhost:9000/h
    "http://localhost:9001/h" Localhost: `localhost` is not allowed: use a public host name, or ask the operator to allow 127.0.0.1 or ::1
    "http://10.2.3.4:1/" -> http://10.2.3.4:1/
    "http://10.2.3.4:0/" Port: port 0 is not allowed: use one of [443, 8443, 80, 8080], or ask the operator
    "http://[::ffff:10.2.3.4]:7/" -> http://[::ffff:a02:304]:7/
    "http://hooks.customer.com:8080/" -> http://hooks.customer.com:8080/
    "http://hooks.customer.com:9000/" Port: port 9000 is not allowed: use one of [443, 8443, 80, 8080], or ask the operator
    "#);
    insta::assert_snapshot!(picture(&allowing(&["::1"]), &[
        "http://[::1]:8081/h",
        "http://[0:0:0:0:0:0:0:1]:8081/",
        "http://localhost:8081/",
    ]), @r#"
    "http://[::1]:8081/h" -> http://[::1]:8081/h
    "http://[0:0:0:0:0:0:0:1]:8081/" -> http://[::1]:8081/
    "http://localhost:8081/" -> http://localhost:8081/
    "#);
    let https_only = Policy { allow_http: false, ..allowing(&["127.0.0.1"]) };
    assert_eq!(https_only.check_url("http://127.0.0.1/"), Err(UrlRefusal::HttpNotAllowed));
}

#[test]
fn the_operators_own_url_may_be_anywhere() {
    for url in ["http://notifications:8000/hook", "https://10.0.0.1/x", "http://localhost:1/"] {
        assert_eq!(check_operator_url(url).expect(url).as_str(), url);
    }
    for url in ["ftp://a/", "http://u:p@a/", "http://a/#f", "http:a/", "http://a b/", "http://0x7f.1/"] {
        check_operator_url(url).expect_err(url);
    }
}

proptest! {
    #[test]
    fn no_address_of_a_denied_range_passes(pick in 0..DENIED_V4.len(), host in any::<u32>()) {
        let net = DENIED_V4[pick].0;
        let address = Ipv4Addr::from(u32::from(net.network()) | (host & u32::from(net.hostmask())));
        prop_assert!(judge(address.into()).is_err());
        prop_assert!(judge(address.to_ipv6_mapped().into()).is_err());
        // With the address inside, every transition form is refused, whatever the address.
        let [a, b, c, d] = address.octets().map(u16::from);
        let (high, low) = ((a << 8) | b, (c << 8) | d);
        for form in [
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, !high, !low),
            Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
        ] {
            prop_assert!(judge(form.into()).is_err());
        }
    }

    #[test]
    fn mapped_is_judged_as_plain(address in any::<u32>()) {
        let plain = Ipv4Addr::from(address);
        let mapped = judge(plain.to_ipv6_mapped().into());
        prop_assert_eq!(judge(plain.into()).is_ok(), mapped.is_ok());
    }

    #[test]
    fn no_text_panics_and_what_passes_is_stable(text in "(https?:/{0,3})?[ -~]{0,40}") {
        if let Ok(url) = allowing(&[]).check_url(&text) {
            prop_assert_eq!(&allowing(&[]).check_url(url.as_str()), &Ok(url));
        }
    }
}
