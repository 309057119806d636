/** What must hold of every answer, whatever was asked. */
import { allSpecs } from "../../src/server/openapi.ts";
import { type FuzzRequest, isSending } from "./requests.ts";
import type { Watched } from "./watch.ts";
import type { Answer, Outcome } from "./wire.ts";
import { canaries, type FuzzCaller, secrets, tenants } from "./world.ts";

const specs = new Map(allSpecs.map((spec) => [spec.operationId, spec]));

/** Refusals of a server that is well and has a store that is: limits, and what isn't there yet. */
const refusals = ["overloaded", "closed", "unavailable", "throttle_full", "throttle_open"];

/** Everything that is wrong about one request and what came of it. */
export function judged(
  request: FuzzRequest,
  outcome: Outcome,
  { caller, watched }: { caller: FuzzCaller; watched: Watched },
): string[] {
  const answer = outcome.answers[request.at];
  return [
    ...hungOf(request, outcome),
    ...outcome.answers.flatMap(failedOf),
    ...outcome.answers.flatMap(({ text }) =>
      leaksIn(text, request.bytes.toString("latin1"), caller),
    ),
    ...auditOf(request, request.isCut ? undefined : answer, watched),
  ];
}

function hungOf({ isWhole, at }: FuzzRequest, { answers, end }: Outcome): string[] {
  if (end === "late") return ["there was neither an answer nor an end of the connection"];
  if (isWhole && end === "closed" && answers[at] === undefined)
    return ["the connection was closed without an answer"];
  return [];
}

function failedOf({ status, text }: Answer): string[] {
  if (status === 0) return [`the answer is none of HTTP: ${JSON.stringify(text.slice(0, 300))}`];
  if (status < 500) return [];
  const code = codeIn(text);
  return code !== undefined && refusals.includes(code) && status === 503
    ? []
    : [`the server answered ${status}: ${text.slice(0, 300)}`];
}

function codeIn(text: string): string | undefined {
  return /^\{"error":\{"code":"(\w+)"/.exec(text)?.[1];
}

/** Texts in what a caller got that it may not see and didn't send. */
export function leaksIn(text: string, sent: string, caller: FuzzCaller): string[] {
  const isThere = (canary: string) => text.includes(canary) && !sent.includes(canary);
  const others = tenants.filter((tenant) => caller.sees !== "all" && caller.sees !== tenant);
  const leaks = others.flatMap((tenant) =>
    Object.values(canaries[tenant]).some(isThere) ? [`the answer has content of ${tenant}`] : [],
  );
  const isPrivate = tenants.some((tenant) => isThere(canaries[tenant].private));
  if (caller.isUser && isPrivate) leaks.push("the answer has a conversation of another user");
  // A key that names a user sees the conversations of that user as they are.
  if (caller.isMember || /flotilla-user/i.test(sent)) return leaks;
  if (secrets.some(isThere)) leaks.push("the answer has a secret");
  const inside = isPrivate || tenants.some((tenant) => isThere(canaries[tenant].inside));
  if (!caller.payloads && inside) leaks.push("the answer has content, and not the shape of it");
  return leaks;
}

function auditOf(
  { route, actId, methods, at, changes: changed }: FuzzRequest,
  answer: Answer | undefined,
  { entries: all, changes }: Watched,
): string[] {
  const entries = all.filter(({ action }) => !byFrames.has(action));
  const shown = entries.map(({ action }) => action).join(", ");
  const [entry] = entries;
  if (entries.length > 1) return [`one request left ${entries.length} entries: ${shown}`];
  const isDone = answer !== undefined && answer.status >= 200 && answer.status < 300;
  const spec = specs.get(route)!;
  if (!entry) {
    if (changes.length > 0 && !isSending(spec))
      return [`${changes.join(", ")} changed, and there is no entry`];
    // It makes something each time, unless the act was sent before.
    const isOwn = actId !== undefined && !changed.some((each) => elsewhere.includes(each));
    const isMade = answer?.status === 201 && making.includes(route);
    return isOwn && isMade ? ["it has made something, and left no entry"] : [];
  }
  if (answer !== undefined && !isDone)
    return [`it was answered with ${answer.status}, and left the entry ${shown}`];
  if (["GET", "HEAD", "OPTIONS"].includes(methods[at]!))
    return [`it is no act, and left the entry ${shown}`];
  // What is done to a session is in its record, which has no ids of acts.
  const isOfSession = entry.action.startsWith("sessions.");
  if (actId !== undefined && !isOfSession && entry.actId !== actId)
    return [`the entry ${shown} has the id ${entry.actId}, and the request had ${actId}`];
  return [];
}

/** Frames leave these too, and their records may be stored when the next request is under way. */
const byFrames = new Set(
  ["compact", "decide", "metadata", "regenerate", "signal", "stop"].map(
    (each) => `sessions.${each}`,
  ),
);
/** What these make isn't all noted: the leader makes tasks of schedules, too. */
const making = ["fireSchedule", "createKey", "rotateKey"];
/** Changes that make it a request of another route. */
const elsewhere = ["method", "path", "id", "hostile id"];
