//! Tokens of jobs over days of simulated time, with an issuer that rotates, is away, and revokes.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use std::collections::HashSet;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use gridlane_auth::delegation::{Exchanged, Issued, JobToken, TokenTerms, Trouble};
use gridlane_core::{Error, ErrorKind, Result, Secret};
use gridlane_delegation::{Advanced, Issuer, JobTokens, Kind, MemoryStore, RecordId, Secrets, Store, Vault};

const START_S: i64 = 1_800_000_000;
const HOUR_S: i64 = 3600;
const SECRET: &str = "oLXt3DuSgwL8Bz1AZLAbAJT5n6tTjmCkFz2T0mDcBv0=";

/// An issuer whose refresh tokens are good for one use, and whose clock may differ.
struct FakeIssuer {
    clock: Arc<AtomicI64>,
    ahead_s: i64,
    lifetime_s: i64,
    state: Mutex<State>,
    is_away: AtomicBool,
}

#[derive(Default)]
struct State {
    number: u32,
    /// Refresh tokens that can be used, and those that were.
    good: HashSet<String>,
    spent: HashSet<String>,
    used_twice: u32,
    questions: u32,
}

impl FakeIssuer {
    fn new(clock: &Arc<AtomicI64>) -> FakeIssuer {
        FakeIssuer {
            clock: clock.clone(),
            ahead_s: 0,
            lifetime_s: HOUR_S,
            state: Mutex::new(State::default()),
            is_away: AtomicBool::new(false),
        }
    }

    /// Its end is in the token, by the issuer's clock.
    fn access(&self, number: u32) -> (Secret, i64) {
        let ends_s = self.clock.load(Ordering::SeqCst) + self.ahead_s + self.lifetime_s;
        (Secret::new(format!("access-{number}-{ends_s}")), ends_s)
    }

    fn next(&self, state: &mut State) -> Secret {
        state.number += 1;
        let refresh = format!("refresh-{}", state.number);
        state.good.insert(refresh.clone());
        Secret::new(refresh)
    }

    fn revoke_all(&self) {
        self.state.lock().unwrap().good.clear();
    }

    fn answers(&self) -> std::result::Result<(), Trouble> {
        match self.is_away.load(Ordering::SeqCst) {
            true => Err(Trouble::Unreachable("no answer for 30 s".to_owned())),
            false => Ok(()),
        }
    }
}

impl Issuer for FakeIssuer {
    async fn exchange(&self, issuer: &str, _: &Secret) -> std::result::Result<Exchanged, Trouble> {
        assert_eq!(issuer, "https://issuer.example/");
        let mut state = self.state.lock().unwrap();
        state.questions += 1;
        self.answers()?;
        Ok(Exchanged { refresh: self.next(&mut state), access: None })
    }

    async fn refresh(&self, _: &str, refresh: &Secret) -> std::result::Result<Issued, Trouble> {
        let mut state = self.state.lock().unwrap();
        state.questions += 1;
        self.answers()?;
        if state.spent.contains(refresh.expose()) {
            state.used_twice += 1;
        }
        if !state.good.remove(refresh.expose()) {
            return Err(Trouble::Refused("invalid_grant".to_owned()));
        }
        state.spent.insert(refresh.expose().to_owned());
        let refresh = self.next(&mut state);
        let (access, ends_s) = self.access(state.number);
        Ok(Issued { access, ends_s, refresh: Some(refresh) })
    }
}

/// A store whose disk is full when it is told.
#[derive(Default)]
struct Disk {
    records: MemoryStore,
    is_full: AtomicBool,
}

impl Store for Disk {
    fn put(&self, id: &RecordId, sealed: &[u8]) -> Result<()> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::LocalIo, "no space left on the disk"));
        }
        self.records.put(id, sealed)
    }
    fn get(&self, id: &RecordId) -> Result<Option<Vec<u8>>> {
        self.records.get(id)
    }
    fn remove(&self, id: &RecordId) -> Result<bool> {
        self.records.remove(id)
    }
    fn names(&self, kind: Kind) -> Result<Vec<String>> {
        self.records.names(kind)
    }
}

/// Several processes, one after the other, have the same disk.
#[derive(Clone, Default)]
struct Shared(Arc<Disk>);

impl Store for Shared {
    fn put(&self, id: &RecordId, sealed: &[u8]) -> Result<()> {
        self.0.put(id, sealed)
    }
    fn get(&self, id: &RecordId) -> Result<Option<Vec<u8>>> {
        self.0.get(id)
    }
    fn remove(&self, id: &RecordId) -> Result<bool> {
        self.0.remove(id)
    }
    fn names(&self, kind: Kind) -> Result<Vec<String>> {
        self.0.names(kind)
    }
}

fn process(disk: &Shared) -> Arc<JobTokens<Shared>> {
    let vault = Vault::new(disk.clone(), Secrets::parse(SECRET).unwrap());
    Arc::new(JobTokens::new(vault, TokenTerms::default()))
}

fn token(lasts_s: i64, job_s: i64) -> JobToken {
    let access = Secret::new(format!("access-0-{}", START_S + lasts_s));
    JobToken::new("https://issuer.example/", access, START_S + lasts_s, true, START_S + job_s, START_S)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn jobs_outlive_their_tokens_by_days() {
    // Clocks that differ by no more than is allowed for.
    for ahead_s in [-50, 0, 50] {
        let clock = Arc::new(AtomicI64::new(START_S));
        let issuer = FakeIssuer { ahead_s, ..FakeIssuer::new(&clock) };
        let disk = Shared::default();
        let mut tokens = process(&disk);
        for job in ["a", "b", "c"] {
            tokens.submit(job, &token(HOUR_S, 72 * HOUR_S)).unwrap();
        }
        run(async {
            for minute in 0..72 * 60 - 1 {
                let now_s = START_S + minute * 60;
                clock.store(now_s, Ordering::SeqCst);
                // Away for half an hour, twice a day: less than a third of... what a token lasts and is refreshed before.
                issuer.is_away.store(minute % 720 >= 705, Ordering::SeqCst);
                if minute % 500 == 499 {
                    // The service is started again.
                    tokens = process(&disk);
                }
                for job in ["a", "b", "c"] {
                    // Two parts of the service look after it.
                    let time = || clock.load(Ordering::SeqCst);
                    let both = async {
                        let first = tokens.advance(job, true, &issuer, time);
                        let second = tokens.advance(job, true, &issuer, time);
                        (first.await, second.await)
                    };
                    let (first, second) = both.await;
                    assert!(matches!(first.unwrap(), Advanced::Wait(_)), "minute {minute}");
                    assert!(matches!(second.unwrap(), Advanced::Wait(_)), "minute {minute}");
                    let usable = tokens.usable(job, now_s).unwrap().unwrap();
                    let usable = usable.unwrap_or_else(|unusable| panic!("minute {minute}: {unusable:?}"));
                    let ends_s: i64 = usable.expose().rsplit_once('-').unwrap().1.parse().unwrap();
                    // As the issuer, and a server with its clock, see it.
                    assert!(now_s + ahead_s < ends_s, "minute {minute}: used after its end");
                }
            }
        });
        let state = issuer.state.lock().unwrap();
        assert_eq!(state.used_twice, 0);
        assert!(state.number > 3 * 72, "{} tokens", state.number);
        assert!(state.questions < state.number + 200, "{} questions", state.questions);
    }
}

#[test]
fn a_job_that_waits_costs_its_issuer_nothing() {
    let clock = Arc::new(AtomicI64::new(START_S));
    let issuer = FakeIssuer::new(&clock);
    let tokens = process(&Shared::default());
    tokens.submit("a", &token(HOUR_S, 72 * HOUR_S)).unwrap();
    run(async {
        for hour in 0..60 {
            clock.store(START_S + hour * HOUR_S, Ordering::SeqCst);
            tokens.advance("a", false, &issuer, || clock.load(Ordering::SeqCst)).await.unwrap();
        }
        assert_eq!(issuer.state.lock().unwrap().questions, 1);
        // Its turn has come.
        let now_s = clock.load(Ordering::SeqCst);
        assert!(tokens.usable("a", now_s).unwrap().unwrap().is_err());
        tokens.advance("a", true, &issuer, || now_s).await.unwrap();
        assert!(tokens.usable("a", now_s).unwrap().unwrap().is_ok());
    });
    assert!(tokens.forget("a").unwrap());
    assert_eq!(tokens.usable("a", START_S).unwrap(), None);
    let issuer = FakeIssuer::new(&clock);
    assert_eq!(run(tokens.advance("a", true, &issuer, || START_S)).unwrap(), Advanced::NoToken);
}

/// Answers after the job was submitted again, as another job of the same name.
struct Late<'a> {
    issuer: &'a FakeIssuer,
    tokens: &'a JobTokens<Shared>,
}

impl Issuer for Late<'_> {
    async fn exchange(&self, issuer: &str, access: &Secret) -> std::result::Result<Exchanged, Trouble> {
        let answer = self.issuer.exchange(issuer, access).await;
        self.tokens.submit("a", &token(2 * HOUR_S, 72 * HOUR_S)).unwrap();
        answer
    }

    async fn refresh(&self, issuer: &str, refresh: &Secret) -> std::result::Result<Issued, Trouble> {
        self.issuer.refresh(issuer, refresh).await
    }
}

#[test]
fn an_answer_for_an_earlier_job_is_none_for_a_later_one() {
    let clock = Arc::new(AtomicI64::new(START_S));
    let issuer = FakeIssuer::new(&clock);
    let tokens = process(&Shared::default());
    tokens.submit("a", &token(HOUR_S, 72 * HOUR_S)).unwrap();
    run(async {
        let late = Late { issuer: &issuer, tokens: &tokens };
        tokens.advance("a", true, &late, || START_S).await.unwrap();
        assert_eq!(issuer.state.lock().unwrap().questions, 1);
        // The later one has a question of its own to ask, and so no refresh token yet.
        tokens.advance("a", true, &issuer, || START_S).await.unwrap();
        assert_eq!(issuer.state.lock().unwrap().questions, 2);
    });
}

#[test]
fn what_is_revoked_is_told_and_mended_by_the_owner() {
    let clock = Arc::new(AtomicI64::new(START_S));
    let issuer = FakeIssuer::new(&clock);
    let tokens = process(&Shared::default());
    tokens.submit("a", &token(HOUR_S, 72 * HOUR_S)).unwrap();
    run(async {
        tokens.advance("a", true, &issuer, || START_S).await.unwrap();
        issuer.revoke_all();
        let late_s = START_S + 3000;
        let Advanced::OwnerMustAct(words) = tokens.advance("a", true, &issuer, || late_s).await.unwrap()
        else {
            panic!("it was revoked");
        };
        assert!(words.contains("the issuer refused: invalid_grant"), "{words}");
        // The issuer is not asked again, whatever happens.
        let questions = issuer.state.lock().unwrap().questions;
        for now_s in [late_s, late_s + HOUR_S, late_s - 2 * HOUR_S] {
            let advanced = tokens.advance("a", true, &issuer, || now_s).await.unwrap();
            assert!(matches!(advanced, Advanced::OwnerMustAct(_)), "{advanced:?}");
        }
        assert_eq!(issuer.state.lock().unwrap().questions, questions);
        let unusable = tokens.usable("a", START_S + HOUR_S).unwrap().unwrap().unwrap_err();
        assert!(unusable.is_final && unusable.message.contains("invalid_grant"), "{unusable:?}");
        clock.store(START_S + HOUR_S, Ordering::SeqCst);
        assert!(tokens.replace("a", Secret::new("new"), START_S + 2 * HOUR_S, START_S + HOUR_S).unwrap());
        tokens.advance("a", true, &issuer, || START_S + HOUR_S).await.unwrap();
        let usable = tokens.usable("a", START_S + HOUR_S).unwrap().unwrap().unwrap();
        assert_eq!(usable.expose(), "new");
        assert_eq!(issuer.state.lock().unwrap().questions, questions + 1);
    });
}

#[test]
fn an_answer_that_cannot_be_written_is_not_lost() {
    let clock = Arc::new(AtomicI64::new(START_S));
    let issuer = FakeIssuer::new(&clock);
    let disk = Shared::default();
    let tokens = process(&disk);
    tokens.submit("a", &token(HOUR_S, 72 * HOUR_S)).unwrap();
    run(async {
        tokens.advance("a", true, &issuer, || START_S).await.unwrap();
        // Full before the question: nothing is asked.
        disk.0.is_full.store(true, Ordering::SeqCst);
        let late_s = START_S + 3000;
        let questions = issuer.state.lock().unwrap().questions;
        let error = tokens.advance("a", true, &issuer, || late_s).await.unwrap_err();
        assert!(error.message().contains("no space left"), "{error:?}");
        assert_eq!(issuer.state.lock().unwrap().questions, questions);
        // Full between the question and the answer.
        disk.0.is_full.store(false, Ordering::SeqCst);
        let filling = Filling { issuer: &issuer, disk: &disk.0 };
        let error = tokens.advance("a", true, &filling, || late_s).await.unwrap_err();
        assert!(error.message().contains("kept in memory until it can be written"), "{error:?}");
        let usable = tokens.usable("a", late_s).unwrap().unwrap().unwrap();
        assert!(usable.expose().starts_with("access-2-"), "{usable:?}");
        assert!(tokens.advance("a", true, &issuer, || late_s).await.is_err());
        disk.0.is_full.store(false, Ordering::SeqCst);
        tokens.advance("a", true, &issuer, || late_s).await.unwrap();
        // The next process has it.
        let usable = process(&disk).usable("a", late_s).unwrap().unwrap().unwrap();
        assert!(usable.expose().starts_with("access-2-"), "{usable:?}");
        assert_eq!(issuer.state.lock().unwrap().used_twice, 0);
    });
}

/// Fills the disk while it answers.
struct Filling<'a> {
    issuer: &'a FakeIssuer,
    disk: &'a Disk,
}

impl Issuer for Filling<'_> {
    async fn exchange(&self, issuer: &str, access: &Secret) -> std::result::Result<Exchanged, Trouble> {
        self.issuer.exchange(issuer, access).await
    }
    async fn refresh(&self, issuer: &str, refresh: &Secret) -> std::result::Result<Issued, Trouble> {
        self.disk.is_full.store(true, Ordering::SeqCst);
        self.issuer.refresh(issuer, refresh).await
    }
}

/// Never answers, but for having spent the token.
struct Silent<'a>(&'a FakeIssuer);

impl Issuer for Silent<'_> {
    async fn exchange(&self, issuer: &str, access: &Secret) -> std::result::Result<Exchanged, Trouble> {
        self.0.exchange(issuer, access).await
    }
    async fn refresh(&self, issuer: &str, refresh: &Secret) -> std::result::Result<Issued, Trouble> {
        drop(self.0.refresh(issuer, refresh).await);
        std::future::pending().await
    }
}

#[test]
fn a_question_that_was_given_up_does_not_block_the_job() {
    let clock = Arc::new(AtomicI64::new(START_S));
    let issuer = FakeIssuer::new(&clock);
    let tokens = process(&Shared::default());
    tokens.submit("a", &token(HOUR_S, 72 * HOUR_S)).unwrap();
    run(async {
        tokens.advance("a", true, &issuer, || START_S).await.unwrap();
        let late_s = START_S + 3000;
        let silent = Silent(&issuer);
        let mut asking = Box::pin(tokens.advance("a", true, &silent, move || late_s));
        // Until the issuer has the question.
        let questions = issuer.state.lock().unwrap().questions;
        let issuer = &issuer;
        std::future::poll_fn(|context| {
            assert!(asking.as_mut().poll(context).is_pending());
            match issuer.state.lock().unwrap().questions > questions {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
        // Meanwhile nobody else asks.
        let advanced = tokens.advance("a", true, issuer, || late_s).await.unwrap();
        assert_eq!(advanced, Advanced::Wait(None));
        drop(asking);
        // The token was spent, and the answer is lost: the words say what happened.
        let Advanced::OwnerMustAct(words) = tokens.advance("a", true, issuer, || late_s).await.unwrap()
        else {
            panic!("the refresh token was spent");
        };
        assert!(words.contains("cut off before its answer was kept"), "{words}");
    });
}

#[test]
fn a_server_that_refuses_gets_a_new_token_once() {
    let clock = Arc::new(AtomicI64::new(START_S));
    let issuer = FakeIssuer::new(&clock);
    let tokens = process(&Shared::default());
    tokens.submit("a", &token(HOUR_S, 72 * HOUR_S)).unwrap();
    run(async {
        tokens.advance("a", true, &issuer, || START_S).await.unwrap();
        let first = tokens.usable("a", START_S).unwrap().unwrap().unwrap();
        assert!(tokens.doubt("a", &first, START_S + 5).unwrap());
        tokens.advance("a", true, &issuer, || START_S + 5).await.unwrap();
        let second = tokens.usable("a", START_S + 5).unwrap().unwrap().unwrap();
        assert_ne!(first, second);
        assert!(!tokens.doubt("a", &second, START_S + 6).unwrap());
        assert!(!tokens.doubt("none", &second, START_S + 6).unwrap());
    });
}
