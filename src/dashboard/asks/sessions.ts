import type { Entry, SessionView } from "../../protocol/message.ts";
import type { sessionSpecs } from "../../server/api/sessions.schema.ts";
import type { runSpecs } from "../../server/api/runs.schema.ts";
import type { taskSpecs } from "../../server/api/tasks.schema.ts";
import type { turnSpecs } from "../../server/api/conversation/turns.schema.ts";
import type { approvalSpecs } from "../../server/api/waiting/approvals.schema.ts";
import type { whySpecs } from "../../server/api/waiting/why.schema.ts";
import { type NewAct, type Answered, part, readAnswer, send } from "../api.ts";
import { openStream } from "../browser.ts";

/** What the pages of sessions and of approvals ask of the server, and do there. */

export type SessionFacts = SessionView;
export type SessionListPage = Omit<Answered<typeof sessionSpecs.list>, "sessions"> & {
  readonly sessions: readonly SessionFacts[];
};
export type EntryPageFacts = Omit<Answered<typeof sessionSpecs.messages>, "entries"> & {
  readonly entries: readonly Entry[];
};
export type TurnFacts = Answered<typeof turnSpecs.turns>["turns"][number];
export type OwnerFacts = Answered<typeof turnSpecs.owner>;
export type StartedFacts = Answered<typeof turnSpecs.tasks>["started"][number];
export type ApprovalPageFacts = Answered<typeof approvalSpecs.list>;
export type ApprovalFacts = ApprovalPageFacts["approvals"][number];

/** The filter of the list, as it is in the address. */
export type SessionQuery = {
  readonly user?: string | undefined;
  readonly agent?: string | undefined;
  readonly state?: SessionFacts["state"]["state"] | undefined;
  readonly status?: SessionFacts["status"] | undefined;
  readonly tenant?: string | undefined;
} & { readonly [Path in `metadata.${string}`]?: string | undefined };

/** A session is found by its id within a tenant; without one, within the caller's. */
export type SessionKey = { readonly sessionId: string; readonly tenant?: string | undefined };

/** A call of a session that is approved or denied. */
export type Decision = {
  readonly messageId: string;
  readonly toolCallId: string;
  readonly approvalId?: string | undefined;
  readonly approved: boolean;
  readonly reason?: string | undefined;
};

const sessionsAtOnce = 50;
const approvalsAtOnce = 200;
const turnsAtOnce = 100;

export const sessionAsks = {
  list: (filter: SessionQuery, cursor: string | undefined, signal: AbortSignal) => {
    const { tenant, ...rest } = filter;
    const query = { ...rest, cursor, limit: sessionsAtOnce };
    return readAnswer<SessionListPage>("v1/sessions", query, signal, ofTenant(tenant));
  },
  session: (key: SessionKey, signal: AbortSignal) =>
    readAnswer<SessionFacts>(pathOf(key), {}, signal, ofTenant(key.tenant)),
  entries: (key: SessionKey, page: { after: number; limit: number }, signal: AbortSignal) =>
    readAnswer<EntryPageFacts>(`${pathOf(key)}/messages`, page, signal, ofTenant(key.tenant)),
  turns: (key: SessionKey, signal: AbortSignal) =>
    readAnswer<Answered<typeof turnSpecs.turns>>(
      `${pathOf(key)}/turns`,
      { limit: turnsAtOnce },
      signal,
      ofTenant(key.tenant),
    ),
  started: (key: SessionKey, signal: AbortSignal) =>
    readAnswer<Answered<typeof turnSpecs.tasks>>(
      `${pathOf(key)}/tasks`,
      {},
      signal,
      ofTenant(key.tenant),
    ),
  owner: (key: SessionKey, signal: AbortSignal) =>
    readAnswer<OwnerFacts>(`${pathOf(key)}/owner`, {}, signal, ofTenant(key.tenant)),
  /** Events of a session behind a place of its log, as they come. */
  events: (key: SessionKey, from: Readonly<Record<string, string>>, signal: AbortSignal) =>
    openStream(`${pathOf(key)}/events?${new URLSearchParams(from)}`, {
      headers: ofTenant(key.tenant),
      signal,
    }),
  approvals: (tenant: string | undefined, cursor: string | undefined, signal: AbortSignal) =>
    readAnswer<ApprovalPageFacts>(
      "v1/approvals",
      { tenant, cursor, limit: approvalsAtOnce },
      signal,
    ),
  why: (taskId: string, signal: AbortSignal) =>
    readAnswer<Answered<typeof whySpecs.get>>(`v1/tasks/${part(taskId)}/why`, {}, signal),

  stop: (key: SessionKey, epoch: number, act: NewAct) =>
    send<Answered<typeof sessionSpecs.stop>>(`${pathOf(key)}/stop?epoch=${epoch}`, act, undefined, {
      headers: ofTenant(key.tenant),
    }),
  regenerate: (key: SessionKey, messageId: string, act: NewAct) =>
    send<Answered<typeof sessionSpecs.regenerate>>(
      `${pathOf(key)}/regenerate`,
      act,
      { id: act.actId, messageId },
      { headers: ofTenant(key.tenant) },
    ),
  compact: (key: SessionKey, act: NewAct) =>
    send<Answered<typeof sessionSpecs.compact>>(`${pathOf(key)}/compact`, act, undefined, {
      headers: ofTenant(key.tenant),
    }),
  decide: (
    key: SessionKey,
    { messageId, ...decision }: Decision,
    by: { readonly id: string; readonly author: string | undefined },
    act: NewAct,
  ) =>
    send<Answered<typeof sessionSpecs.toolResults>>(
      `${pathOf(key)}/tool-results`,
      act,
      { ...by, messageId, results: [decision] },
      { headers: ofTenant(key.tenant) },
    ),
  /** `payload` is JSON as text, so that no digit is lost on the way. */
  signalSession: (
    key: SessionKey,
    signal: { readonly name: string; readonly id: string; readonly author: string | undefined },
    payload: string,
    act: NewAct,
  ) =>
    send<Answered<typeof sessionSpecs.signals>>(
      `${pathOf(key)}/signals`,
      act,
      withPayload(signal, payload),
      { headers: ofTenant(key.tenant) },
    ),
  signalRun: (
    runId: string,
    signal: { readonly name: string; readonly id: string },
    payload: string,
    act: NewAct,
  ) =>
    send<Answered<typeof runSpecs.signal>>(
      `v1/runs/${part(runId)}/signals`,
      act,
      withPayload(signal, payload),
    ),
  signalTask: (
    taskId: string,
    signal: { readonly name: string; readonly id: string },
    payload: string,
    act: NewAct,
  ) =>
    send<Answered<typeof taskSpecs.signal>>(
      `v1/tasks/${part(taskId)}/signals`,
      act,
      withPayload(signal, payload),
    ),
};

function pathOf({ sessionId }: SessionKey): string {
  return `v1/sessions/${part(sessionId)}`;
}

/** A header names the tenant, where the caller looks after more than one. */
function ofTenant(tenant: string | undefined): Readonly<Record<string, string>> {
  return tenant === undefined ? {} : { "Flotilla-Tenant": encodeURIComponent(tenant) };
}

function withPayload(signal: object, payload: string): string {
  return `${JSON.stringify(signal).slice(0, -1)},"payload":${payload}}`;
}
