import type { ApprovalFacts } from "../../asks/sessions.ts";

/** One thing that waits for a person: a call that is to be approved, or a signal that is to be sent. */
export type PersonWait = {
  readonly key: string;
  readonly what: ApprovalFacts["what"];
  readonly id: string;
  readonly tenant: string;
  /** Of the flow, the task or the agent. */
  readonly name: string | null;
  readonly tool?: string | undefined;
  readonly signal?: string | undefined;
  readonly messageId?: string | undefined;
  readonly toolCallId?: string | undefined;
  readonly approvalId?: string | undefined;
  readonly sinceMs: number;
  readonly untilMs: number | undefined;
};

/** Everything that waits, one by one: the nearest deadline first, then what has waited longest. */
export function waitsOf(approvals: readonly ApprovalFacts[]): PersonWait[] {
  const all = approvals.flatMap((approval): PersonWait[] => {
    const { what, id, tenant, name, signal, calls } = approval;
    const base = { what, id, tenant, name };
    if (what !== "session") {
      const { sinceMs, untilMs } = approval;
      const key = `${what} ${id} ${sinceMs}`;
      return [
        { ...base, key, signal: signal ?? undefined, sinceMs, untilMs: untilMs ?? undefined },
      ];
    }
    return calls.map(({ untilMs, ...call }) => ({
      ...base,
      ...call,
      key: `session ${id} ${call.messageId} ${call.toolCallId}`,
      untilMs,
    }));
  });
  return all.toSorted(
    (one, other) =>
      (one.untilMs ?? Infinity) - (other.untilMs ?? Infinity) || one.sinceMs - other.sinceMs || 0,
  );
}

const maxIdChars = 200;

/**
 * The id of the decision on a call, or of the signal for a wait. Every tab makes the same one, so that the
 * first that is stored counts and a second one adds nothing.
 */
export function decisionId(...about: readonly (string | number)[]): string {
  const whole = `dashboard:${about.join(":")}`;
  if (whole.length <= maxIdChars) return whole;
  return `${whole.slice(0, maxIdChars - 20)}:${hashOf(whole)}`;
}

/** FNV-1a, twice with other beginnings: enough to tell ids apart that begin alike. */
function hashOf(text: string): string {
  const hash = (start: number) => {
    let value = start;
    for (let at = 0; at < text.length; at++)
      value = Math.imul(value ^ text.charCodeAt(at), 0x01000193) >>> 0;
    return value.toString(16).padStart(8, "0");
  };
  return hash(0x811c9dc5) + hash(0x12345678);
}
