import type { ModelTotal } from "../../base/usage.ts";
import type { PodEvent } from "../../runtime/pod.ts";
import type { ArchiveState } from "../../sessions/log/archive/state.ts";
import type { SessionLoad } from "../../sessions/start.ts";
import type { SocketEvent } from "../socket/sockets.ts";
import type { Instruments } from "./instruments.ts";

type SessionMetricEvent =
  | SocketEvent
  | Extract<
      PodEvent,
      {
        type:
          | "turn_started"
          | "turn_ended"
          | "tokens"
          | "record"
          | "record_unknown"
          | "record_resent"
          | "record_fenced"
          | "log_taken"
          | "log_owned"
          | "log_lost";
      }
    >;

const seconds = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
// Elections of servers take up to 9 seconds, and a take may wait for one.
const takeSeconds = [0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30];
const commitSeconds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5];

// Code chooses the names of models, and each is a series that the scraper keeps for long.
const maxModels = 100;

/** Metrics of sessions on this pod. Labels are names of agents, never of sessions. */
export function createSessionMetrics(make: Instruments) {
  const running = make.gauge("flotilla_turns_running", "Answers being made now.", ["agent"]);
  const turns = make.counter("flotilla_turns_total", "Answers that ended, by outcome.", [
    "agent",
    "outcome",
  ]);
  const first = make.histogram(
    "flotilla_turn_first_chunk_seconds",
    "From the start of an answer to its first chunk.",
    seconds,
    ["agent"],
  );
  const whole = make.histogram("flotilla_turn_seconds", "How long answers took.", seconds, [
    "agent",
  ]);
  const chunks = make.counter("flotilla_turn_chunks_total", "Chunks that agents returned.", [
    "agent",
  ]);
  const tokens = make.counter(
    "flotilla_tokens_total",
    "Tokens that turns, and steps of tasks and runs, used: input (cached ones too), output, and cached. Each call counts once.",
    ["model", "kind"],
  );
  const saved = make.counter(
    "flotilla_tokens_saved_total",
    "Tokens of stored calls to models that were answered from the journal, and not asked for again.",
    ["model", "kind"],
  );
  const models = new Set<string>();
  const records = make.counter("flotilla_session_records_total", "Records committed to logs.");
  const entries = make.counter("flotilla_session_entries_total", "Entries committed to logs.");
  const commits = make.histogram(
    "flotilla_session_commit_seconds",
    "From sending a record to its commit.",
    commitSeconds,
  );
  const unknown = make.counter(
    "flotilla_session_records_unknown_total",
    "Times that it wasn't known whether a record had been committed.",
  );
  const resent = make.counter(
    "flotilla_session_records_resent_total",
    "Times that such a record was sent again.",
  );
  const fenced = make.counter(
    "flotilla_session_records_fenced_total",
    "Records that weren't committed because another pod had taken the log.",
  );
  const takes = make.histogram(
    "flotilla_session_take_seconds",
    "From the start of taking a log until all was read that its owner needs.",
    takeSeconds,
  );
  const archive = createArchiveMetrics(make);
  const owned = make.gauge("flotilla_session_logs_owned", "Logs that this pod owns.");
  const lost = make.counter(
    "flotilla_session_logs_lost_total",
    "Logs whose ownership another pod took from this one.",
  );
  const waiting = make.gauge(
    "flotilla_turns_waiting",
    "Answers and summaries on this pod that wait because of sessions.maxTurns.",
  );
  const sockets = make.gauge("flotilla_sockets", "Open sockets.");
  const cut = make.counter(
    "flotilla_sockets_cut_total",
    "Sockets cut because of their clients: slow (didn't read), silent (answered no pings), too_many (sent too many frames).",
    ["reason"],
  );
  const followed = make.gauge(
    "flotilla_sessions_followed",
    "Sessions with subscribers on this pod.",
  );
  const subscribers = make.gauge(
    "flotilla_session_subscribers",
    "Subscriptions to sessions on this pod.",
  );
  const ring = make.gauge(
    "flotilla_session_ring_bytes",
    "Memory for the newest entries of sessions with subscribers.",
  );
  const coldReads = make.gauge(
    "flotilla_session_cold_reads",
    "Reads of the journal for new subscribers: under_way, and waiting.",
    ["state"],
  );
  // Begin with zeros: a missing series looks the same as one that isn't scraped.
  for (const reason of ["slow", "silent", "too_many"]) cut.inc({ reason }, 0);

  const countTokens = (
    counter: typeof tokens,
    { model: named, input, output, cached }: ModelTotal,
  ): void => {
    const isKnown = models.has(named) || models.size < maxModels;
    if (isKnown) models.add(named);
    const model = isKnown ? named || "unknown" : "other";
    counter.inc({ model, kind: "input" }, input);
    counter.inc({ model, kind: "output" }, output);
    counter.inc({ model, kind: "cached" }, cached);
  };

  return {
    /** Sets the gauges of a scrape. */
    show(load: SessionLoad | undefined, archived: ArchiveState | undefined): void {
      if (archived) archive.show(archived);
      waiting.set(load?.turnsWaiting ?? 0);
      followed.set(load?.feeds ?? 0);
      subscribers.set(load?.subscribers ?? 0);
      ring.set(load?.ringBytes ?? 0);
      coldReads.set({ state: "under_way" }, load?.coldReads.underWay ?? 0);
      coldReads.set({ state: "waiting" }, load?.coldReads.waiting ?? 0);
    },
    observe(event: SessionMetricEvent): void {
      switch (event.type) {
        case "turn_started":
          return running.inc({ agent: event.agent });
        case "turn_ended": {
          const { agent, outcome, ttftMs, durationMs } = event;
          running.dec({ agent });
          turns.inc({ agent, outcome });
          chunks.inc({ agent }, event.chunks);
          for (const total of event.tokens) countTokens(tokens, total);
          for (const total of event.savedTokens) countTokens(saved, total);
          if (ttftMs !== undefined) first.observe({ agent }, ttftMs / 1_000);
          return whole.observe({ agent }, durationMs / 1_000);
        }
        case "tokens":
          return countTokens(event.saved ? saved : tokens, event);
        case "record":
          records.inc();
          entries.inc(event.entries);
          return commits.observe(event.durationMs / 1_000);
        case "record_unknown":
          return unknown.inc();
        case "record_resent":
          return resent.inc();
        case "record_fenced":
          return fenced.inc();
        case "log_taken":
          return takes.observe(event.tookMs / 1_000);
        case "log_owned":
          return owned.set(event.owned);
        case "sockets":
          return sockets.set(event.open);
        case "socket_cut":
          return cut.inc({ reason: event.why });
        case "log_lost":
          owned.set(event.owned);
          return lost.inc();
      }
    },
  };
}

/**
 * How far the database is behind logs that aren't in it. Made with the first scrape that has such logs: without
 * them a 0 would look like an archive that keeps up.
 */
function createArchiveMetrics(make: Instruments) {
  const makeAll = () => ({
    entries: make.gauge(
      "flotilla_session_unarchived_entries",
      "Entries of logs that this pod owns which the database doesn't have yet.",
    ),
    bytes: make.gauge("flotilla_session_unarchived_bytes", "Bytes of their records."),
    lag: make.gauge(
      "flotilla_session_archive_lag_seconds",
      "How long the oldest of them has waited.",
    ),
    away: make.gauge(
      "flotilla_session_archive_away",
      "1 while the database takes nothing from this pod's logs.",
    ),
    changed: make.gauge(
      "flotilla_session_streams_changed",
      "Streams of this pod's logs that aren't as they were made.",
    ),
    trims: make.counter(
      "flotilla_session_trims_total",
      "Times that a log of this pod was trimmed behind what the database has.",
    ),
    aside: make.counter(
      "flotilla_session_aside_total",
      "Entries that the database refused and that were set aside for an operator.",
    ),
  });
  let made: ReturnType<typeof makeAll> | undefined;
  let before = { trims: 0, aside: 0 };
  return {
    show(state: ArchiveState): void {
      const { isAway, unarchivedEntries, unarchivedBytes, lagMs, trims, aside } = state;
      made ??= makeAll();
      made.entries.set(unarchivedEntries);
      made.bytes.set(unarchivedBytes);
      made.lag.set(lagMs / 1_000);
      made.away.set(isAway ? 1 : 0);
      made.changed.set(state.changedStreams);
      made.trims.inc(Math.max(0, trims - before.trims));
      made.aside.inc(Math.max(0, aside - before.aside));
      before = { trims, aside };
    },
  };
}
