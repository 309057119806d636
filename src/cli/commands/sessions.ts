import { type Command, Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import { type Entry, isTurn, type TurnView, type WakeView } from "../../protocol/message.ts";
import type { ListSessions, SessionView } from "../../sessions/service.ts";
import { entryText, outcomeText } from "../chat/transcript.ts";
import {
  listsByDefault,
  moreText,
  number,
  type TargetFlags,
  valuesOf,
  withJson,
  withPage,
  withTarget,
} from "../flags.ts";
import { printStarted } from "../links.ts";
import { ago, columns, oneLine, paint, paintState, print, printJson } from "../output.ts";
import { defaultTenant, onSessions } from "../connect.ts";
import type { SessionOperations } from "../remote.ts";
import { parseInput } from "../task-flags.ts";

type Flags = TargetFlags & { tenant?: string; json?: true };
type ListFlags = Flags &
  Omit<ListSessions, "metadata"> & { limit: number; metadata?: readonly string[] };

const pageEntries = 200;
const maxTurnsShown = 20;
/** The author of what a command does, if none is named. */
const byDefault = "program";

const stateStyles = {
  idle: "gray",
  catching_up: "cyan",
  waiting: "yellow",
  compacting: "yellow",
} as const;

export function sessionsCommand(program: Command): void {
  const sessions = program
    .command("sessions")
    .description("list, show, export, signal, wake, stop, archive and remove sessions")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla sessions list --state catching_up        sessions with an answer in progress
  $ flotilla sessions list --state waiting            sessions that wait for a permit of a throttle
  $ flotilla sessions list --user ada --status active
  $ flotilla sessions list --metadata ticket.id=7     sessions with this value in their metadata
  $ flotilla sessions show 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e
  $ flotilla sessions signal 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e approve '{"ok":true}'
  $ flotilla sessions export 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e > session.jsonl
  $ flotilla sessions --url https://flotilla.example  through a server
  $ flotilla chat 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e`,
    );
  const command = (words: string, does: string, options = {}) =>
    withJson(withTarget(sessions.command(words, options).description(does))).option(
      "--tenant <tenant>",
      `the tenant of the sessions (default: ${defaultTenant}, or that of the key or token)`,
    );

  const listing = command("list", "list sessions, the most recently active first", {
    isDefault: true,
  })
    .option("--user <user>", "only sessions of this user")
    .option("--agent <name>", "only sessions of this agent")
    .option(
      "--metadata <path=value...>",
      "only sessions with this value in their metadata, such as ticket.id=7",
    )
    .addOption(
      new Option("--status <status>", "only sessions of this status").choices([
        "active",
        "archived",
      ]),
    )
    .addOption(
      new Option("--state <state>", "only sessions in this state").choices([
        "idle",
        "catching_up",
        "waiting",
        "compacting",
      ]),
    );
  withPage(listing, 20).action(list);
  listsByDefault(sessions, listing);
  command("show <id>", "show a session, its last entries, its turns and what they started")
    .addOption(
      new Option("--last <number>", "how many entries of its log")
        .default(50)
        .argParser(number("--last", { min: 0, max: 100_000 })),
    )
    .action(show);
  command("export <id>", "write a session and all its entries, as lines of JSON").action(write);
  command("stop <id>", "stop the answer that is being made, and keep what it has so far").action(
    stop,
  );
  command("signal <id> <name> [json]", "send a signal to the tool call that waits for it")
    .option("--id <id>", "sending it again with the same id does nothing")
    .option("--author <author>", "who sends it")
    .action(signal);
  command("wake <id> <key>", "have an agent asked at a time, or again and again")
    .option("--at <time>", "when, such as 2026-01-31T08:00:00Z")
    .option("--after <ms>", "how long from now, in milliseconds", Number)
    .option("--cron <pattern>", "a pattern as of a schedule")
    .option("--timezone <zone>", "the zone of the pattern; default UTC")
    .option("--message <text>", "what the agent is asked")
    .option("--to <agent>", "the agent, if the session has several")
    .option("--author <author>", "who sets it")
    .action(wake);
  command("cancel-wake <id> <key>", "cancel a wake").action(cancelWake);
  command("archive <id>", "archive a session: it can be read, but nothing can be added").action(
    (id: string, flags: Flags) => change(id, flags, "archive", "is archived"),
  );
  command("unarchive <id>", "open an archived session again").action((id: string, flags: Flags) =>
    change(id, flags, "unarchive", "is open again"),
  );
  command("remove <id>", "delete a session and all its messages for good")
    .option("--yes", "confirm that it is deleted")
    .action(remove);
}

/** A list that is older says so. */
const noticeableMs = 5_000;

async function list(flags: ListFlags): Promise<void> {
  const { json, url, config, store, tenant, metadata, ...given } = flags;
  const target = { url, config, store, tenant };
  const filter = { ...given, ...(metadata && { metadata: valuesOf("--metadata", metadata) }) };
  const page = await onSessions(target, (service, whose) => service.list(whose, filter));
  if (json) return printJson(page);
  if (page.sessions.length === 0 && page.next === null) return print("no sessions");
  const nowMs = systemClock.now();
  const heading = ["id", "agent", "users", "state", "entries", "active", ""];
  const rows = page.sessions.map((session) => toRow(session, nowMs));
  print(columns([heading.map((each) => paint("dim", each)), ...rows]));
  const isOld = page.asOf !== undefined && nowMs - page.asOf >= noticeableMs;
  if (isOld) print(paint("dim", `as of ${new Date(page.asOf).toISOString()}`));
  if (page.next !== null) print(paint("dim", moreText(page.next, page.lookedBackTo)));
}

function toRow(session: SessionView, nowMs: number): string[] {
  const { sessionId, agents, users, lastSeq, activeAtMs, preview, previewAuthor } = session;
  return [
    oneLine(sessionId, 60),
    oneLine(agents.join(", "), 40),
    oneLine(users.join(", "), 40),
    stateText(session),
    String(lastSeq),
    ago(nowMs, activeAtMs),
    paint("dim", preview === "" ? "" : oneLine(`${previewAuthor}: ${preview}`, 60)),
  ];
}

function stateText({ status, state }: SessionView): string {
  const shown = paintState(stateStyles, state.state, state.state.replace("_", " "));
  return status === "archived" ? `archived${state.state === "idle" ? "" : `, ${shown}`}` : shown;
}

async function show(sessionId: string, flags: Flags & { last: number }): Promise<void> {
  const { json, last } = flags;
  const { session, entries, turns, links, wakes } = await onSessions(
    flags,
    async (service, tenant) => {
      const found = await service.get(tenant, sessionId);
      const from = Math.max(0, found.lastSeq - last);
      const all: Entry[] = [];
      for await (const page of pagesOf(service, found, from)) all.push(...page);
      const known = await Promise.all([
        service.turns(tenant, sessionId, { limit: maxTurnsShown }).catch(unlessRefused),
        service.started(tenant, sessionId).catch(unlessRefused),
        service.wakes(tenant, sessionId).catch(unlessRefused),
      ]);
      return { session: found, entries: all, turns: known[0], links: known[1], wakes: known[2] };
    },
  );
  if (json) {
    return printJson({
      session,
      entries,
      turns: turns?.turns ?? [],
      started: links?.started ?? [],
      wakes: wakes ?? [],
    });
  }
  const { state, agents, users, lastSeq, tokens, metadata, createdAtMs } = session;
  const answers = isTurn(state) ? `, by ${oneLine(state.agent, 80)}, turn ${state.epoch}` : "";
  const facts: [string, string][] = [
    ["id", oneLine(session.sessionId, 200)],
    ["agents", oneLine(agents.join(", "), 400) || "none"],
    ["users", oneLine(users.join(", "), 400) || "none"],
    ["state", stateText(session) + answers],
    ["entries", String(lastSeq)],
    ["tokens", `${tokens}${session.needsCompaction ? ", needs a compaction" : ""}`],
    ["metadata", oneLine(JSON.stringify(metadata), 1_000)],
    ["created", new Date(createdAtMs).toISOString()],
  ];
  print(columns(facts.map(([what, value]) => [paint("dim", what), value])));
  for (const entry of entries) print(`\n${headingOf(entry)}\n${indented(entryText(entry))}`);
  if (wakes && wakes.length > 0) printWakes(wakes);
  if (turns && turns.turns.length > 0) printTurns(turns.turns, turns.next !== null);
  if (links) printStarted(links);
}

/** A key that may read sessions need not be allowed to read tasks, and an earlier release has no turns. */
function unlessRefused(error: unknown): undefined {
  if (hasCode(error, "forbidden", "not_found", "unsupported")) return undefined;
  throw error;
}

function printTurns(turns: readonly TurnView[], hasMore: boolean): void {
  print("\nturns, the newest first");
  print(columns([turnHeading.map((each) => paint("dim", each)), ...turns.map(turnRow)]));
  if (hasMore) print(paint("dim", "  and more"));
}

const turnHeading = ["  turn", "outcome", "agent", "began", "first", "took", "in", "out", "cached"];

function turnRow(turn: TurnView): string[] {
  const { epoch, attempt, agent, podId, outcome, usage } = turn;
  const { beganAtMs, firstChunkAtMs, endedAtMs } = turn;
  const since = (ms: number | null) => (ms === null ? "" : `${ms - beganAtMs} ms`);
  const cost = usage?.cost ?? null;
  return [
    `  ${epoch}.${attempt}`,
    outcome ?? "under way",
    oneLine(agent, 40),
    new Date(beganAtMs).toISOString(),
    since(firstChunkAtMs),
    since(endedAtMs),
    ...(usage ? [usage.input, usage.output, usage.cached].map(String) : ["", "", ""]),
    oneLine(usage?.model ?? "", 60),
    cost === null ? "" : `cost ${cost}`,
    paint("dim", podId === null ? "" : `on ${oneLine(podId, 100)}`),
  ];
}

function headingOf(entry: Entry): string {
  const { seq, kind, role, author, replaces, atMs } = entry;
  const what = kind === "message" ? role : kind.replace("_", " ");
  const instead = replaces === undefined ? "" : ` in place of #${replaces}`;
  const about = [what, instead, outcomeText(entry)].filter((each) => each !== "").join(" ");
  const when = new Date(atMs).toISOString();
  return `${paint("dim", `#${seq}`)} ${paint("bold", oneLine(author, 80))} ${paint("dim", `${about}  ${when}`)}`;
}

function indented(text: string): string {
  return text
    .split("\n")
    .map((line) => `  ${line}`)
    .join("\n");
}

/** Prints the session, then one line per entry that existed when the export began. */
async function write(sessionId: string, flags: Flags): Promise<void> {
  await onSessions(flags, async (service, tenant) => {
    const session = await service.get(tenant, sessionId);
    printJson({ session });
    for await (const page of pagesOf(service, session, 0)) {
      for (const entry of page) printJson({ entry });
    }
  });
}

/** Entries after `from`, up to the last one that existed at first. */
async function* pagesOf(
  service: SessionOperations,
  { tenant, sessionId, lastSeq }: SessionView,
  from: number,
): AsyncGenerator<readonly Entry[]> {
  for (let after = from; after < lastSeq;) {
    const limit = Math.min(pageEntries, lastSeq - after);
    const { entries } = await service.entries(tenant, sessionId, { after, limit });
    // The session was deleted meanwhile, so the output is incomplete.
    if (entries.length === 0) throw missing(sessionId);
    yield entries;
    after = entries.at(-1)!.seq;
  }
}

async function stop(sessionId: string, flags: Flags): Promise<void> {
  const stopped = await onSessions(flags, (service, tenant) => service.stop(tenant, sessionId));
  if (flags.json) return printJson({ sessionId, stopped });
  print(stopped ? "the answer is stopped" : "no answer is being made");
}

async function signal(
  sessionId: string,
  name: string,
  text: string | undefined,
  { id, author, ...flags }: Flags & { id?: string; author?: string },
): Promise<void> {
  const payload = (await parseInput(text)) as Json;
  const given = { name, payload, ...(id !== undefined && { id }), ...(author && { author }) };
  const sent = await onSessions(flags, (service, tenant) =>
    service.signal(tenant, sessionId, given),
  );
  if (flags.json) return printJson({ sessionId, name, ...sent });
  print(`sent signal ${oneLine(name, 200)} to session ${oneLine(sessionId, 200)}`);
}

type WakeFlags = Flags & {
  at?: string;
  after?: number;
  cron?: string;
  timezone?: string;
  message?: string;
  to?: string;
  author?: string;
};

async function wake(sessionId: string, key: string, flags: WakeFlags): Promise<void> {
  const { at, after: afterMs, cron, timezone, message, to, author = byDefault } = flags;
  const given = { at, afterMs, cron, timezone, message, to };
  const filled = Object.entries(given).filter(([, value]) => value !== undefined);
  const set = await onSessions(flags, (service, tenant) =>
    service.wake(tenant, sessionId, { key, author, ...Object.fromEntries(filled) }),
  );
  if (flags.json) return printJson({ sessionId, ...set });
  print(`wake ${oneLine(key, 100)} is set for ${new Date(set.atMs).toISOString()}`);
}

async function cancelWake(sessionId: string, key: string, flags: Flags): Promise<void> {
  const about = { key, author: byDefault };
  const cancelled = await onSessions(flags, (service, tenant) =>
    service.cancelWake(tenant, sessionId, about),
  );
  if (flags.json) return printJson({ sessionId, key, cancelled });
  print(cancelled ? `wake ${oneLine(key, 100)} is cancelled` : "no wake of this key is set");
}

/** The wakes of a session, the next one first. */
function printWakes(wakes: readonly WakeView[]): void {
  print("\nwakes, the next one first");
  const rows = wakes.map(({ key, agent, atMs, cron, preview }) => [
    `  ${oneLine(key, 100)}`,
    oneLine(agent, 40),
    new Date(atMs).toISOString(),
    oneLine(cron ?? "", 60),
    paint("dim", oneLine(preview ?? "", 60)),
  ]);
  print(columns(rows));
}

async function change(
  sessionId: string,
  flags: Flags,
  what: "archive" | "unarchive",
  done: string,
): Promise<void> {
  await onSessions(flags, (service, tenant) => service[what](tenant, sessionId));
  if (flags.json) return printJson({ sessionId, [`${what}d`]: true });
  print(`session ${oneLine(sessionId, 200)} ${done}`);
}

async function remove(sessionId: string, flags: Flags & { yes?: true }): Promise<void> {
  if (!flags.yes) {
    throw new FlotillaError(
      "invalid_option",
      "this deletes the session and all its messages for good: add --yes to confirm",
    );
  }
  await onSessions(flags, (service, tenant) => service.remove(tenant, sessionId));
  if (flags.json) return printJson({ sessionId, removed: true });
  print(`session ${oneLine(sessionId, 200)} is deleted`);
}

function missing(sessionId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no session ${oneLine(sessionId, 200)}`);
}
