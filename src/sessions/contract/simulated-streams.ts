import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { between, fraction, type Random } from "../../base/random.ts";
import type {
  CreateAnswer,
  NewMessage,
  PublishAnswer,
  PublishCondition,
  ServerFacts,
  StoredMessage,
  StreamEngine,
  StreamSettings,
} from "../log/jetstream/engine.ts";

/**
 * JetStream as the log must expect it: a stream's leader compares a message with what it has proposed,
 * stores it later, and answers later still, or never. Leaders are deposed with proposals in flight, of
 * which some are stored by the next leader and some by none; a deposed one goes on answering for a while
 * with what it knew, and takes messages that no other ever sees. Replicas are behind. What is stored stays,
 * unless a test takes it away.
 */
export type SimulatedStreams = {
  /** The servers, as one process reaches them. */
  connect(): StreamEngine;
  /** How likely each trouble is. */
  troubles: StreamTroubles;
  /** What goes wrong with the next publish to a log, once. */
  next: PublishTrouble | undefined;
  facts: ServerFacts;
  /** What the servers answer to the next creations, instead of making streams. */
  refusal: Extract<CreateAnswer, { type: "refused" }> | undefined;
  /** Lets what was held back arrive. */
  land(): Promise<void>;
  /** Deposes the leaders of all streams. */
  depose(): void;
  /** Another program publishes to the subject of a log's marks, under no condition. */
  stray(stream: string): void;
  /** What is really stored. */
  stored(stream: string): readonly StoredMessage[];
  readonly names: readonly string[];
  /** Changes a stream behind the back of its owners: its settings, or its messages. */
  change(stream: string, change: Partial<StreamSettings> | ((all: StoredMessage[]) => void)): void;
  /** Forgets the last messages of a stream, with all that is on its way to its leader. */
  setBack(stream: string, messages: number): void;
  /** Deletes a stream. */
  remove(stream: string): void;
};

/**
 * `before`: it is lost on its way. `after`: it is stored, and the answer is lost. `late`: it is held until
 * `land`. `proposed`: it is in flight, and no answer comes. `false_wrong`: it is refused as if another were
 * there. `doubled`: it arrives twice, and the second answer comes first.
 */
export type PublishTrouble = "before" | "after" | "late" | "proposed" | "false_wrong" | "doubled";

export type StreamTroubles = {
  /** How long a message or an answer takes at most. */
  readonly delayMs: number;
  readonly before: number;
  readonly after: number;
  readonly late: number;
  readonly falseWrong: number;
  readonly doubled: number;
  /** The leader of the stream is deposed when the message has arrived. */
  readonly deposed: number;
  /** A read is answered by a replica that is behind, or a replay ends early. */
  readonly behind: number;
  /** A read isn't answered. */
  readonly unread: number;
  /** Messages of a batch are lost on their way. */
  readonly holed: number;
};

export const noStreamTroubles: StreamTroubles = {
  delayMs: 0,
  before: 0,
  after: 0,
  late: 0,
  falseWrong: 0,
  doubled: 0,
  deposed: 0,
  behind: 0,
  unread: 0,
  holed: 0,
};

type Answer = (answer: PublishAnswer) => void;
type Proposal = { readonly message: NewMessage; readonly answer: Answer };
/** What a deposed leader knows, and goes on answering with. */
type Deposed = { readonly last: number; swallowed: number; readonly untilMs: number };
type Stream = {
  settings: StreamSettings;
  /** Everything that was ever stored, in order of its sequence, without gaps. */
  messages: StoredMessage[];
  /** What was forgotten, and the last sequence by then: replicas that are behind still have it. */
  purges: { readonly below: number; readonly last: number }[];
  last: number;
  proposed: Proposal[];
  deposed: Deposed | undefined;
  electedMs: number;
};

/** A late message comes within this time. */
const lateMs = 6_000;
const electionMs = [300, 2_000] as const;
const deposedMs = 8_000;
/** How many messages of a batch are lost at once. */
const maxHole = 5;

export function simulateStreams({
  clock,
  random,
  onEvent = () => {},
  onStored = () => {},
}: {
  clock: Clock;
  random: Random;
  /** Called for everything that went wrong, for tests that must have met it. */
  onEvent?: (what: string) => void;
  /** Called for everything that is stored, also if it is trimmed later. */
  onStored?: (stream: string, message: StoredMessage) => void;
}): SimulatedStreams {
  const streams = new Map<string, Stream>();
  let held: (() => void)[] = [];
  const chance = (likely: number): boolean => likely > 0 && fraction(random) < likely;

  const happens = (likely: number, what: string): boolean => {
    if (!chance(likely)) return false;
    onEvent(what);
    return true;
  };

  /** Later, by as long as a way takes. */
  const later = (act: () => void): void => {
    const { delayMs } = servers.troubles;
    if (delayMs === 0) queueMicrotask(act);
    else clock.after(between(random, 0, delayMs), act);
  };
  const way = (): Promise<void> => new Promise((resolve) => later(resolve));

  const append = (stream: Stream, message: NewMessage): number => {
    const sequence = ++stream.last;
    const stored = { ...message, sequence };
    stream.messages.push(stored);
    onStored(stream.settings.name, stored);
    if (stream.settings.maxPerSubject === 1)
      stream.purges.push({ below: sequence, last: sequence });
    return sequence;
  };

  /** Stores the first proposals, up to this one. */
  const commit = (stream: Stream, proposal: Proposal): void => {
    while (stream.proposed.includes(proposal)) {
      const { message, answer } = stream.proposed.shift()!;
      const sequence = append(stream, message);
      if (happens(servers.troubles.after, "fault: ack lost")) continue;
      later(() => answer({ type: "acked", stream: stream.settings.name, sequence }));
    }
  };

  const deposeLeader = (stream: Stream): void => {
    const { proposed, last } = stream;
    onEvent("fault: leader deposed");
    stream.proposed = [];
    stream.deposed = {
      last,
      swallowed: proposed.length,
      untilMs: clock.monotonic() + between(random, 0, deposedMs),
    };
    stream.electedMs = clock.monotonic() + between(random, electionMs[0], electionMs[1]);
    // The next leader has some of them, in order, and stores those.
    const kept = proposed.slice(0, between(random, 0, proposed.length));
    if (kept.length < proposed.length) onEvent("fault: proposal dropped");
    for (const { message } of kept) {
      onEvent("fault: proposal stored by the next leader");
      append(stream, message);
    }
  };

  const arrive = (message: NewMessage, condition: PublishCondition, answer: Answer): void => {
    const stream = streams.get(condition.stream);
    if (!stream) return later(() => answer({ type: "silent", why: "no responders" }));
    const nowMs = clock.monotonic();
    const { deposed, settings } = stream;
    if (deposed && nowMs < deposed.untilMs && chance(0.3)) {
      // It takes what fits what it knows, and can't get it stored any more.
      if (condition.lastSequence === deposed.last + deposed.swallowed) {
        deposed.swallowed++;
        return onEvent("fault: taken by a deposed leader");
      }
      onEvent("fault: refused by a deposed leader");
      const { last } = deposed;
      return later(() => answer({ type: "wrong_last", lastSequence: last }));
    }
    if (nowMs < stream.electedMs) {
      return later(() => answer({ type: "silent", why: "no responders" }));
    }
    const isLog = settings.maxPerSubject !== 1;
    const isFalse = isLog && happens(servers.troubles.falseWrong, "fault: false wrong last");
    if (isFalse || condition.lastSequence !== stream.last + stream.proposed.length) {
      const lastSequence = isFalse ? condition.lastSequence + 1 : stream.last;
      return later(() => answer({ type: "wrong_last", lastSequence }));
    }
    if (
      settings.maxBytes >= 0 &&
      viewOf(stream, stream.last).bytes() + message.body.length > settings.maxBytes
    ) {
      return later(() => answer({ type: "full" }));
    }
    const proposal = { message, answer };
    stream.proposed.push(proposal);
    later(() => commit(stream, proposal));
    if (happens(servers.troubles.deposed, "fault: deposed at a message")) deposeLeader(stream);
  };

  const publish = (message: NewMessage, condition: PublishCondition): Promise<PublishAnswer> =>
    new Promise((resolve) => {
      const silence = () => resolve({ type: "silent", why: "no answer in time" });
      clock.after(condition.limitMs, silence);
      const isLog = streams.get(condition.stream)?.settings.maxPerSubject !== 1;
      const trouble = isLog ? servers.next : undefined;
      if (trouble) servers.next = undefined;
      const { before, late, doubled } = servers.troubles;
      const never = () => {};
      const land = (answer: Answer) => () => arrive(message, condition, answer);
      if (trouble === "false_wrong") {
        const { lastSequence } = condition;
        return later(() => resolve({ type: "wrong_last", lastSequence: lastSequence + 1 }));
      }
      if (trouble === "proposed") {
        const stream = streams.get(condition.stream)!;
        const proposal = { message, answer: never };
        if (condition.lastSequence !== stream.last) return;
        stream.proposed.push(proposal);
        held.push(() => commit(stream, proposal));
        return;
      }
      if (trouble === "before" || happens(before, "fault: publish lost")) return;
      if (trouble === "after") return later(land(never));
      if (trouble === "late") return void held.push(land(never));
      if (happens(late, "fault: publish late")) {
        return void clock.after(between(random, 0, lateMs), land(resolve));
      }
      if (trouble === "doubled" || happens(doubled, "fault: publish doubled")) {
        later(land(never));
        later(land(resolve));
        return;
      }
      later(land(resolve));
    });

  /** What a read sees: what is stored, or what a replica that is behind has of it. */
  const seenOf = async (name: string) => {
    await way();
    if (happens(servers.troubles.unread, "fault: read failed")) throw unread();
    const stream = streams.get(name);
    if (!stream) return undefined;
    const { deposed } = stream;
    if (deposed && clock.monotonic() < deposed.untilMs && chance(0.3)) {
      onEvent("fault: read from a deposed leader");
      return viewOf(stream, deposed.last);
    }
    if (happens(servers.troubles.behind, "fault: replica behind")) {
      return viewOf(
        stream,
        Math.max(stream.settings.firstSequence - 1, stream.last - between(random, 1, 5)),
      );
    }
    return viewOf(stream, stream.last);
  };

  /** A stream as a replica has it that knows it up to `last`. */
  const viewOf = ({ settings, messages, purges }: Stream, last: number) => {
    const begin = messages[0]?.sequence ?? settings.firstSequence;
    const below = purges.filter((each) => each.last <= last).map((each) => each.below);
    const first = Math.max(begin, ...below);
    const slice = (from: number, to: number): readonly StoredMessage[] =>
      messages.slice(Math.max(from, first) - begin, Math.min(to, last) - begin + 1);
    return {
      settings,
      firstSequence: Math.min(first, last + 1),
      lastSequence: last,
      slice,
      all: () => slice(first, last),
      bytes: () => slice(first, last).reduce((bytes, { body }) => bytes + body.length, 0),
    };
  };

  const engine: StreamEngine = {
    publish,
    async read(name, sequence) {
      const seen = await seenOf(name);
      await way();
      return seen?.slice(sequence, sequence)[0];
    },
    async lastOn(name, subject) {
      const seen = await seenOf(name);
      await way();
      return seen?.all().findLast((each) => each.subject === subject);
    },
    async *readFrom(name, { from, to }) {
      const seen = await seenOf(name);
      const messages = seen?.slice(from, to) ?? [];
      const isHoled = happens(servers.troubles.holed, "fault: hole in a batch");
      const hole = isHoled ? between(random, 0, messages.length - 1) : messages.length;
      const behind = hole + between(random, 1, maxHole);
      for (const [place, message] of messages.entries()) {
        if (place >= hole && place < behind) continue;
        if (happens(servers.troubles.behind / 5, "fault: replay cut")) return;
        yield message;
      }
    },
    async state(name) {
      const seen = await seenOf(name);
      await way();
      if (!seen) return undefined;
      const { settings, firstSequence, lastSequence, bytes } = seen;
      return { settings, firstSequence, lastSequence, bytes: bytes(), copies: [] };
    },
    async create(settings) {
      await way();
      if (servers.refusal) return servers.refusal;
      const found = streams.get(settings.name);
      if (found) {
        const isSame = JSON.stringify(found.settings) === JSON.stringify(settings);
        return { type: isSame ? "made" : "different" };
      }
      streams.set(settings.name, {
        settings,
        messages: [],
        purges: [],
        last: settings.firstSequence - 1,
        proposed: [],
        deposed: undefined,
        electedMs: -Infinity,
      });
      return { type: "made" };
    },
    async purge(name, below) {
      await way();
      const stream = streams.get(name);
      if (!stream) throw unread();
      stream.purges.push({ below, last: stream.last });
    },
    facts: async () => servers.facts,
    close: async () => {},
  };

  const servers: SimulatedStreams = {
    connect: () => engine,
    troubles: noStreamTroubles,
    next: undefined,
    facts: {
      version: "2.15.1",
      hasJetStream: true,
      maxPayloadBytes: 8 * 1_024 * 1_024,
      flushes: [true, true, true],
      versions: ["2.15.1", "2.15.1", "2.15.1"],
      silent: [],
    },
    refusal: undefined,
    async land() {
      const landing = held;
      held = [];
      for (const each of landing) each();
      await way();
      await way();
    },
    depose() {
      for (const stream of streams.values()) deposeLeader(stream);
    },
    stray(name) {
      const stream = streams.get(name)!;
      onEvent("fault: stray on the subject of marks");
      const subject = stream.settings.subjects[0]!.replace(/>$/, "m");
      const proposal = { message: { subject, headers: {}, body: Buffer.from("?") }, answer() {} };
      stream.proposed.push(proposal);
      later(() => commit(stream, proposal));
    },
    stored(name) {
      const stream = streams.get(name);
      return stream ? viewOf(stream, stream.last).all() : [];
    },
    get names() {
      return [...streams.keys()];
    },
    change(name, change) {
      const stream = streams.get(name)!;
      if (typeof change !== "function") {
        stream.settings = { ...stream.settings, ...change };
        return;
      }
      const all = [...stream.messages];
      change(all);
      stream.messages = all;
      stream.last = all.at(-1)?.sequence ?? stream.last;
    },
    setBack(name, messages) {
      const stream = streams.get(name)!;
      onEvent("fault: stream set back");
      stream.messages = stream.messages.slice(0, -messages);
      stream.last -= messages;
      stream.proposed = [];
      stream.deposed = undefined;
    },
    remove: (name) => void streams.delete(name),
  };
  return servers;
}

function unread(): FlotillaError {
  return new FlotillaError("store_unavailable", "the servers didn't answer");
}
