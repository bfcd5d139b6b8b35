//! When the operator is told: once when deliveries begin to be late, once when they are no more. Pure: how late it is
//! and the moment are arguments. Never knows by which way, nor what is said.

use hooklog_projections::time::Millis;

use crate::engine::health::LATE;

/// It is over when nothing has been later than this…
const CALM: Millis = Millis::from_secs(60);
/// …for so long. A lateness around the limit is one alarm, not one a minute.
const CALM_FOR: Millis = Millis::from_secs(60);

/// Whether the operator was alarmed.
#[derive(Debug, Default)]
pub struct Alarm(Option<Raised>);

#[derive(Clone, Copy, Debug)]
struct Raised {
    at: Millis,
    worst: Millis,
    calm_since: Option<Millis>,
}

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The oldest due attempt is late by this.
    Late {
        /// By how much.
        by: Millis,
    },
    /// Nothing is any more.
    OnTime {
        /// How long it lasted, the calm at its end included.
        lasted: Millis,
        /// The most that anything was late.
        worst: Millis,
    },
}

impl Alarm {
    /// How late it is at a moment of the monotonic clock; what is to be told of it.
    pub fn hear(&mut self, late: Millis, now: Millis) -> Option<News> {
        let Some(raised) = &mut self.0 else {
            if late <= LATE {
                return None;
            }
            self.0 = Some(Raised { at: now, worst: late, calm_since: None });
            return Some(News::Late { by: late });
        };
        raised.worst = raised.worst.max(late);
        if late > CALM {
            raised.calm_since = None;
            return None;
        }
        let since = *raised.calm_since.get_or_insert(now);
        if now.0.saturating_sub(since.0) < CALM_FOR.0 {
            return None;
        }
        let news = News::OnTime { lasted: Millis(now.0.saturating_sub(raised.at.0)), worst: raised.worst };
        self.0 = None;
        Some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told over a list of (second, seconds late).
    fn told(heard: &[(u64, u64)]) -> Vec<(u64, News)> {
        let mut alarm = Alarm::default();
        let hear = |(at, late): &(u64, u64)| {
            Some((*at, alarm.hear(Millis::from_secs(*late), Millis::from_secs(*at))?))
        };
        heard.iter().filter_map(hear).collect()
    }

    #[test]
    fn each_is_told_once() {
        let late = News::Late { by: Millis::from_secs(301) };
        assert_eq!(told(&[(0, 0), (5, 299), (10, 300)]), []);
        assert_eq!(told(&[(0, 301), (5, 306), (600, 900)]), [(0, late)]);
        let over = News::OnTime { lasted: Millis::from_secs(130), worst: Millis::from_secs(320) };
        assert_eq!(
            told(&[(0, 301), (20, 320), (70, 0), (100, 0), (130, 0), (135, 0)]),
            [(0, late), (130, over)]
        );
    }

    #[test]
    fn a_lateness_around_the_limit_is_one_alarm() {
        let mut heard = vec![(0, 301)];
        // Up and down every ten seconds for an hour, never calm for a minute.
        heard.extend((1..360).map(|n| (n * 10, if n % 4 == 0 { 310 } else { 20 })));
        assert_eq!(told(&heard).len(), 1);
        // Nor is it over while something waits for two minutes.
        let mut heard = vec![(0, 301)];
        heard.extend((1..360).map(|n| (n * 10, 120)));
        assert_eq!(told(&heard).len(), 1);
    }
}
