import { useId, useState } from "react";
import { FlotillaError, hasCode } from "../../../base/errors.ts";
import type { NewAct, HomeFacts } from "../../api.ts";
import { sessionAsks, type SessionKey } from "../../asks/sessions.ts";
import type { OpenCall } from "../../facts/sessions/conversation.ts";
import { typedPayload } from "../../facts/payload.ts";
import { decisionId } from "../../facts/sessions/waits.ts";
import { visibleLine } from "../../facts/visible.ts";
import type { PlannedAct } from "../../parts/act-dialog.tsx";
import { ShownText } from "../../parts/text.tsx";

/** Whether something was sent, and no answer of the server has come. */
function isLost(error: unknown): boolean {
  return hasCode(error, "unavailable") && error.details?.["away"] === true;
}

/** Decisions and signals, as a person is about to send them from any page. */

/** The author of what a caller decides. A key without a user needs one; others are known to the server. */
export function decidingAs({ caller }: HomeFacts): string | undefined {
  return caller?.kind === "server" ? (caller.name ?? "key") : undefined;
}

/** Approves or denies a call. Tabs that decide at once send the same id, so that one decision is stored. */
export function decidePlan(
  key: SessionKey,
  { messageId, toolCallId, approvalId, tool }: OpenCall,
  { approved, author }: { approved: boolean; author: string | undefined },
): PlannedAct {
  let reason = "";
  /** Whether the answer to a try of this dialog was lost, so that a decision that is there may be this one. */
  let mayBeThere = false;
  const id = decisionId(key.sessionId, messageId, approvalId ?? toolCallId);
  return {
    title: approved ? "Approve this call?" : "Deny this call?",
    explanation: (
      <>
        <p>
          The agent wants to call{" "}
          <strong>
            <ShownText text={visibleLine(tool, 100)} />
          </strong>
          . {approved ? "It goes on with the call." : "It is told that it may not."}
        </p>
        <ReasonField onChange={(text) => (reason = text)} />
      </>
    ),
    verb: approved ? "Approve" : "Deny",
    isHarmful: !approved,
    async perform(act) {
      const said = reason.trim();
      const decision = { messageId, toolCallId, approvalId, approved };
      const { duplicate } = await sessionAsks
        .decide(key, { ...decision, ...(said !== "" && { reason: said }) }, { id, author }, act)
        .catch((error: unknown) => {
          if (isLost(error)) mayBeThere = true;
          throw error;
        });
      if (duplicate && !mayBeThere)
        throw new FlotillaError(
          "conflict",
          "it was decided already, in another tab or by another person: the first decision counts",
        );
      return approved ? "Approved: the agent goes on." : "Denied: the agent is told so.";
    },
  };
}

type SignalTarget = {
  /** What waits, for people. */
  readonly what: string;
  readonly signal: string;
  send(payload: string, act: NewAct): Promise<void>;
};

/** Sends a signal, with a payload that is checked before. */
function signalPlan({ what, signal, send }: SignalTarget): PlannedAct {
  let text = "";
  return {
    title: "Send the signal?",
    explanation: (
      <>
        <p>
          {what} waits for{" "}
          <strong>
            <ShownText text={visibleLine(signal, 100)} />
          </strong>{" "}
          and goes on with the payload.
        </p>
        <PayloadField onChange={(typed) => (text = typed)} />
      </>
    ),
    verb: "Send",
    async perform(act) {
      const payload = typedPayload(text);
      if ("trouble" in payload) throw new FlotillaError("invalid_input", payload.trouble);
      await send(payload.json, act);
      return "The signal is sent.";
    },
  };
}

/** Sends the signal that a call of a session waits for. */
export function signalCallPlan(
  key: SessionKey,
  { messageId, toolCallId, signal = "", tool }: OpenCall,
  author: string | undefined,
): PlannedAct {
  const id = decisionId(key.sessionId, messageId, toolCallId);
  return signalPlan({
    what: `The call of ${visibleLine(tool, 80)}`,
    signal,
    async send(payload, act) {
      await sessionAsks.signalSession(key, { name: signal, id, author }, payload, act);
    },
  });
}

/** Sends the signal that a run or a task waits for, if it still does. */
export function signalWaitPlan(wait: {
  readonly what: "run" | "task";
  readonly id: string;
  readonly name: string | null;
  readonly signal: string;
  readonly sinceMs: number;
}): PlannedAct {
  const { what, id: target, name, signal, sinceMs } = wait;
  const id = decisionId(target, signal, sinceMs);
  let wasSent = false;
  return signalPlan({
    what: `The ${what}${name === null ? "" : ` ${visibleLine(name, 80)}`}`,
    signal,
    async send(payload, act) {
      // A run keeps a signal that it doesn't wait for, and would take it for a later one.
      const { verdict } = await sessionAsks.why(target, new AbortController().signal);
      const isWaiting = verdict.reasons.some(
        ({ code, evidence }) =>
          code === "waits_for_signal" && "signal" in evidence && evidence.signal === signal,
      );
      if (!isWaiting && !wasSent)
        throw new FlotillaError(
          "conflict",
          `it doesn't wait for this signal any more: another was first, or its time is over`,
        );
      wasSent = true;
      const sent = { name: signal, id };
      if (what === "run") await sessionAsks.signalRun(target, sent, payload, act);
      else await sessionAsks.signalTask(target, sent, payload, act);
    },
  });
}

function ReasonField({ onChange }: { onChange: (text: string) => void }) {
  const id = useId();
  return (
    <p className="field">
      <label htmlFor={id}>Reason, if the agent is to know one</label>
      <input
        id={id}
        type="text"
        maxLength={1_000}
        autoComplete="off"
        onChange={(event) => onChange(event.target.value)}
      />
    </p>
  );
}

function PayloadField({ onChange }: { onChange: (text: string) => void }) {
  const id = useId();
  const [text, setText] = useState("");
  const payload = typedPayload(text);
  const remark = "trouble" in payload ? payload.trouble : "An empty field sends null.";
  return (
    <p className="field">
      <label htmlFor={id}>Payload as JSON</label>
      <textarea
        id={id}
        rows={5}
        spellCheck={false}
        placeholder='{"ok": true}'
        value={text}
        aria-describedby={`${id}-remark`}
        aria-invalid={"trouble" in payload}
        onChange={(event) => {
          setText(event.target.value);
          onChange(event.target.value);
        }}
      />
      <span id={`${id}-remark`} className={"trouble" in payload ? "wrong" : "soft"}>
        {visibleLine(remark, 300)}
      </span>
    </p>
  );
}

/** Stops the answer that is being made. */
export function stopPlan(key: SessionKey, epoch: number, agent: string): PlannedAct {
  return {
    title: "Stop this answer?",
    explanation: (
      <p>
        <strong>
          <ShownText text={visibleLine(agent, 80)} />
        </strong>{" "}
        is asked to stop. What has come of the answer is kept, and what waits is answered next.
      </p>
    ),
    verb: "Stop it",
    isHarmful: true,
    async perform(act) {
      const { done } = await sessionAsks.stop(key, epoch, act);
      return done ? "The answer is stopped." : "The answer had ended already.";
    },
  };
}

/** Makes the last answer anew. */
export function regeneratePlan(key: SessionKey, messageId: string, agent: string): PlannedAct {
  return {
    title: "Regenerate the last answer?",
    explanation: (
      <p>
        <strong>
          <ShownText text={visibleLine(agent, 80)} />
        </strong>{" "}
        is asked again. The new answer is shown in place of the old one, which stays in the log.
      </p>
    ),
    verb: "Regenerate",
    async perform(act) {
      await sessionAsks.regenerate(key, messageId, act);
      return "The answer is made anew.";
    },
  };
}

/** Summarizes what was said so far. */
export function compactPlan(key: SessionKey, tokens: number): PlannedAct {
  return {
    title: "Compact this session?",
    explanation: (
      <p>
        Its agent summarizes what was said so far, about {tokens.toLocaleString("en-US")} tokens,
        and gets the summary in its place from then on. Users see the conversation as before.
      </p>
    ),
    verb: "Compact",
    async perform(act) {
      const { done } = await sessionAsks.compact(key, act);
      return done ? "The summary is being made." : "There is nothing to summarize.";
    },
  };
}
