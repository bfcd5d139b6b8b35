//! Messages to owners, as far as the log decides them: what is begun once, and ended once. Never knows what a message
//! says, nor by which way it goes.

use hooklog_projections::fact::{Actor, Fact};
use hooklog_projections::ids::{EndpointKey, Seq};
use hooklog_projections::policy::Text;
use hooklog_projections::tables::Tables;
use hooklog_projections::telling::{Owed, Owing};

use super::{Answer, Decision, Engine, Fatal};

impl Engine {
    pub(super) fn begin_telling(&mut self, actor: Actor, key: EndpointKey) -> Decision<Answer> {
        let owing = self.owing(key)?;
        if owing.telling.is_none() && !owing.news.is_empty() {
            self.record(actor, Fact::TellingBegan { key })?;
        }
        Ok(Ok(Answer::Done))
    }

    pub(super) fn owner_told(
        &mut self,
        actor: Actor,
        (key, began): (EndpointKey, Seq),
        channel: Text,
        refused: Option<Text>,
    ) -> Decision<Answer> {
        if self.owing(key)?.telling.is_some_and(|telling| telling.began == began) {
            let began = Some(began);
            self.record(actor, Fact::OwnerTold { key, deliveries: Vec::new(), channel, began, refused })?;
        }
        Ok(Ok(Answer::Done))
    }

    fn owing(&mut self, key: EndpointKey) -> Result<Owing, Fatal> {
        Ok(self.rows.over(&**self.log.disk()).get::<Owed>(&key)?.unwrap_or_default())
    }
}
