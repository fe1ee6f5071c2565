//! iceoryx2: one publish-subscribe service in each direction, with a bounded queue that blocks when
//! it is full.
//!
//! wait=polling|event   calls receive() repeatedly, or sends a notification with every message
#![forbid(unsafe_code)]

use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::sample_mut::SampleMut;
use std::fmt::Debug;
use std::process::ExitCode;
use thalweg_peers::words::{Job, Setting, Side, retry};
use thalweg_peers::{Outcome, Way, main_of};

fn main() -> ExitCode {
    set_log_level(LogLevel::Error);
    main_of(&["wait"], |setting, side| {
        let event = setting.choice("wait", &["polling", "event"])? == 1;
        Ok(Box::new(Services::meet(setting, side, event)?))
    })
}

fn words(call: &'static str) -> impl Fn(&dyn Debug) -> String {
    move |error| format!("{call}: {error:?}")
}

struct Services {
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    bells: Option<(Notifier<ipc::Service>, Listener<ipc::Service>)>,
    loan: Option<SampleMut<ipc::Service, [u8], ()>>,
    // Not read, but must outlive the ports.
    _node: Node<ipc::Service>,
}

impl Services {
    fn meet(setting: &Setting, side: Side, event: bool) -> Outcome<Self> {
        let node = NodeBuilder::new().create::<ipc::Service>();
        let node = node.map_err(|e| words("node")(&e))?;
        let (to, from) = match side {
            Side::Sender => ("there", "back"),
            Side::Receiver => ("back", "there"),
        };
        let publisher = publish(&node, setting, side, to)?;
        let subscriber = subscribe(&node, setting, side, from)?;
        let bells = if event {
            Some((notify(&node, setting, side, to)?, listen(&node, setting, side, from)?))
        } else {
            None
        };
        Ok(Self { publisher, subscriber, bells, loan: None, _node: node })
    }

    fn ring(&self) -> Outcome {
        match &self.bells {
            Some((notifier, _)) => notifier.notify().map(drop).map_err(|e| words("notify")(&e)),
            None => Ok(()),
        }
    }
}

fn name(setting: &Setting, which: &str) -> Outcome<ServiceName> {
    let name = format!("thalweg-peer/{}/{which}", setting.pair);
    ServiceName::new(&name).map_err(|e| format!("{name}: {e:?}"))
}

type Messages =
    iceoryx2::service::port_factory::publish_subscribe::PortFactory<ipc::Service, [u8], ()>;
type Bells = iceoryx2::service::port_factory::event::PortFactory<ipc::Service>;

/// A creates the service; B waits until it exists.
fn messages(
    node: &Node<ipc::Service>,
    setting: &Setting,
    side: Side,
    which: &str,
) -> Outcome<Messages> {
    let name = name(setting, which)?;
    let depth = if setting.job == Job::Stream { setting.depth() } else { 1 };
    let builder = || {
        node.service_builder(&name)
            .publish_subscribe::<[u8]>()
            .max_publishers(1)
            .max_subscribers(1)
            .history_size(0)
            .subscriber_max_buffer_size(depth)
            .subscriber_max_borrowed_samples(1)
            .enable_safe_overflow(false)
    };
    match side {
        Side::Sender => builder().create().map_err(|e| words("service")(&e)),
        Side::Receiver => retry("service", || builder().open()),
    }
}

fn events(node: &Node<ipc::Service>, setting: &Setting, side: Side, which: &str) -> Outcome<Bells> {
    let name = name(setting, which)?;
    let builder = || node.service_builder(&name).event().max_notifiers(1).max_listeners(1);
    match side {
        Side::Sender => builder().create().map_err(|e| words("event service")(&e)),
        Side::Receiver => retry("event service", || builder().open()),
    }
}

fn publish(
    node: &Node<ipc::Service>,
    setting: &Setting,
    side: Side,
    which: &str,
) -> Outcome<Publisher<ipc::Service, [u8], ()>> {
    // A ping returns as a whole message; other answers have 8 bytes.
    let answers = side == Side::Receiver && setting.job != Job::PingPong;
    let publisher = messages(node, setting, side, which)?
        .publisher_builder()
        .initial_max_slice_len(if answers { 8 } else { setting.bytes })
        .max_loaned_samples(1)
        .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
        .create();
    publisher.map_err(|e| words("publisher")(&e))
}

fn subscribe(
    node: &Node<ipc::Service>,
    setting: &Setting,
    side: Side,
    which: &str,
) -> Outcome<Subscriber<ipc::Service, [u8], ()>> {
    let service = messages(node, setting, side, which)?;
    service.subscriber_builder().create().map_err(|e| words("subscriber")(&e))
}

fn notify(
    node: &Node<ipc::Service>,
    setting: &Setting,
    side: Side,
    which: &str,
) -> Outcome<Notifier<ipc::Service>> {
    let service = events(node, setting, side, which)?;
    service.notifier_builder().create().map_err(|e| words("notifier")(&e))
}

fn listen(
    node: &Node<ipc::Service>,
    setting: &Setting,
    side: Side,
    which: &str,
) -> Outcome<Listener<ipc::Service>> {
    let service = events(node, setting, side, which)?;
    service.listener_builder().create().map_err(|e| words("listener")(&e))
}

impl Way for Services {
    fn send(&mut self, from: &[u8]) -> Outcome {
        let loan = self.publisher.loan_slice_uninit(from.len());
        let loan = loan.map_err(|e| words("loan_slice_uninit")(&e))?;
        loan.write_from_slice(from).send().map_err(|e| words("send")(&e))?;
        self.ring()
    }

    fn receive(&mut self, into: &mut [u8]) -> Outcome {
        loop {
            let sample = self.subscriber.receive().map_err(|e| words("receive")(&e))?;
            if let Some(sample) = sample {
                if sample.len() != into.len() {
                    return Err(format!("a message of {} bytes, not {}", sample.len(), into.len()));
                }
                into.copy_from_slice(&sample);
                return Ok(());
            }
            match &self.bells {
                Some((_, listener)) => {
                    listener.blocking_wait(|_| {}).map_err(|e| words("blocking_wait")(&e))?;
                }
                None => std::hint::spin_loop(),
            }
        }
    }

    fn lent(&mut self, len: usize) -> Outcome<&mut [u8]> {
        let loan = match &mut self.loan {
            Some(loan) => loan,
            none => {
                let made = self.publisher.loan_slice(len);
                none.insert(made.map_err(|e| words("loan_slice")(&e))?)
            }
        };
        Ok(loan.payload_mut())
    }

    fn hand_lent(&mut self) -> Outcome {
        let loan = self.loan.take().ok_or("nothing was lent")?;
        loan.send().map_err(|e| words("send")(&e))?;
        self.ring()?;
        self.receive(&mut [0; 8])
    }
}
