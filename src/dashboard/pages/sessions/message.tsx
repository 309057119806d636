import { memo, type ReactNode, useState } from "react";
import type { Part } from "../../../protocol/message.ts";
import type { SessionKey, TurnFacts } from "../../asks/sessions.ts";
import {
  callStateOf,
  type ConversationItem,
  isToolPart,
  type MessageItem,
  openCallOf,
  type SentResult,
  toolNameOf,
} from "../../facts/sessions/conversation.ts";
import { costText } from "../../facts/sessions/axis.ts";
import type { AnswerSoFar } from "../../facts/sessions/tail.ts";
import { exactCount } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useHome, useMay } from "../../live.ts";
import type { PlannedAct } from "../../parts/act-dialog.tsx";
import { Badge, When } from "../../parts/marks.tsx";
import { LongText, ShownText } from "../../parts/text.tsx";
import { JsonValue } from "../../parts/value.tsx";
import { decidePlan, decidingAs, signalCallPlan } from "./decisions.tsx";

export type ItemProps = {
  session: SessionKey;
  turns: ReadonlyMap<number, TurnFacts>;
  onPlan: (plan: PlannedAct) => void;
};

/** One place of the conversation. */
export const Item = memo(function Item({ item, ...props }: ItemProps & { item: ConversationItem }) {
  switch (item.type) {
    case "message":
      return <Message item={item} {...props} />;
    case "answer":
      return <Answer answer={item.answer} {...props} />;
    case "summary":
      return <Summary item={item} />;
  }
});

const roles = { user: "of-user", assistant: "of-assistant", system: "of-system" } as const;

function Message({ item, session, turns, onPlan }: ItemProps & { item: MessageItem }) {
  const { entry, parts, sent, stoppedBy, isLive } = item;
  const { role, author, atMs, seq, outcome, error, messageId, epoch } = entry;
  const usage = epoch === undefined ? null : turns.get(epoch)?.usage;
  return (
    <article className={`message ${roles[role] ?? "of-system"}`} aria-label={`Entry ${seq}`}>
      <header>
        <strong>
          <ShownText text={visibleLine(author, 80)} />
        </strong>
        {role === "system" && <Badge>system</Badge>}
        <span className="soft">
          <When atMs={atMs} />
        </span>
        {isLive ? (
          <Badge tone="accent">goes on</Badge>
        ) : (
          outcome !== undefined &&
          outcome !== "completed" && (
            <Badge tone={outcome === "stopped" ? "plain" : "wrong"}>
              {outcome}
              {stoppedBy !== undefined && ` by ${visibleLine(stoppedBy, 60)}`}
            </Badge>
          )
        )}
        <span className="soft message-seq" title={`entry ${seq}`}>
          {exactCount(seq)}
        </span>
      </header>
      <Parts
        parts={parts}
        messageId={messageId}
        session={session}
        onPlan={onPlan}
        isLive={isLive}
      />
      {sent.map((each) => (
        <Decided key={each.seq} sent={each} />
      ))}
      {error && (
        <p className="wrong">
          <Badge tone="wrong">{visibleLine(error.code, 60)}</Badge>{" "}
          <LongText text={typeof error === "string" ? error : error.message} maxChars={500} />
        </p>
      )}
      {usage && (
        <p className="soft message-cost">
          {exactCount(usage.input)} tokens in, {exactCount(usage.output)} out
          {usage.cost !== null && <>, cost {costText(usage.cost)}</>}
          {usage.model !== null && (
            <>
              , <ShownText text={visibleLine(usage.model, 80)} />
            </>
          )}
        </p>
      )}
    </article>
  );
}

/** The answer that is being made. */
function Answer({
  answer: { messageId, agent, parts, attempt },
  session,
  onPlan,
}: ItemProps & { answer: AnswerSoFar }) {
  return (
    <article className="message of-assistant is-live" aria-label="The answer that is being made">
      <header>
        <strong>
          <ShownText text={visibleLine(agent ?? "the agent", 80)} />
        </strong>
        <Badge tone="accent">answering{attempt > 1 && `, attempt ${attempt}`}</Badge>
      </header>
      <Parts parts={parts} messageId={messageId} session={session} onPlan={onPlan} isLive />
    </article>
  );
}

function Summary({ item: { entry } }: { item: Extract<ConversationItem, { type: "summary" }> }) {
  const { parts, throughSeq, atMs } = entry;
  return (
    <details className="summary">
      <summary className="soft">
        Summarized{throughSeq !== undefined && ` up to entry ${exactCount(throughSeq)}`},{" "}
        <When atMs={atMs} />
      </summary>
      {parts.map((part, at) => (
        <PlainPart key={at} part={part} isLive={false} />
      ))}
    </details>
  );
}

/** Who decided on calls, and how. */
function Decided({ sent: { author, atMs, results } }: { sent: SentResult }) {
  const decided = results.flatMap((result) =>
    "approved" in result ? [result.approved ? "approved" : "denied"] : ["gave a result"],
  );
  const reasons = results.flatMap((result) =>
    "approved" in result && typeof result.reason === "string" ? [result.reason] : [],
  );
  return (
    <p className="soft decided">
      <ShownText text={visibleLine(author, 60)} /> {[...new Set(decided)].join(", ")}{" "}
      <When atMs={atMs} />
      {reasons.map((reason, at) => (
        <span key={at}>
          : <LongText text={reason} maxChars={300} />
        </span>
      ))}
    </p>
  );
}

type PartsProps = Omit<ItemProps, "turns"> & {
  parts: readonly Part[];
  messageId: string;
  isLive: boolean;
};

// A message of thousands of parts is opened piece by piece.
const partsAtOnce = 40;

function Parts({ parts, messageId, session, onPlan, isLive }: PartsProps) {
  const [shown, setShown] = useState(partsAtOnce);
  const seen = parts.filter(({ type }) => type !== "step-start");
  const hidden = Math.max(0, seen.length - shown);
  // Of an answer that is being made the end is what one looks for.
  const drawn = isLive ? seen.slice(hidden) : seen.slice(0, shown);
  const more = hidden > 0 && (
    <button type="button" className="inline" onClick={() => setShown(shown + partsAtOnce * 4)}>
      {exactCount(hidden)} more parts
    </button>
  );
  return (
    <>
      {isLive && more}
      {drawn.map((part, at) =>
        isToolPart(part) ? (
          <ToolCall key={at} part={part} messageId={messageId} session={session} onPlan={onPlan} />
        ) : (
          <PlainPart key={at} part={part} isLive={isLive} />
        ),
      )}
      {!isLive && more}
    </>
  );
}

/** A part that isn't a call: text, reasoning, a file, a source, data. Never markup. */
function PlainPart({ part, isLive }: { part: Part; isLive: boolean }) {
  const { type } = part;
  if (type === "text") return <TextPart text={textIn(part, "text")} isLive={isLive} />;
  if (type === "reasoning")
    return (
      <details className="folded" open={isLive}>
        <summary className="soft">Reasoning</summary>
        <TextPart text={textIn(part, "text")} isLive={isLive} />
      </details>
    );
  if (type === "file" || type === "reasoning-file")
    return (
      <p>
        <Badge>{visibleLine(textIn(part, "mediaType") || "file", 60)}</Badge>{" "}
        <LongText text={textIn(part, "filename") || textIn(part, "url")} maxChars={200} />
      </p>
    );
  if (type === "source-url" || type === "source-document")
    return (
      <p>
        <Badge>source</Badge> <LongText text={textIn(part, "title")} maxChars={200} />{" "}
        <LongText text={textIn(part, "url") || textIn(part, "filename")} maxChars={200} />
      </p>
    );
  const { type: _, ...rest } = part;
  return <Folded title={visibleLine(type, 80)} value={"data" in part ? part["data"] : rest} />;
}

const liveChars = 2_000;

function TextPart({ text, isLive }: { text: string; isLive: boolean }) {
  const isLong = isLive && text.length > liveChars;
  return (
    <p className="said">
      {isLong ? <ShownText text={`…${text.slice(-liveChars)}`} /> : <LongText text={text} />}
    </p>
  );
}

function textIn(part: Part, field: string): string {
  const value = part[field];
  return typeof value === "string" ? value : "";
}

/** A value that is drawn when it is opened. */
function Folded({ title, value }: { title: ReactNode; value: unknown }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details
      className="folded"
      onToggle={(event) => setOpen((event.target as HTMLDetailsElement).open)}
    >
      <summary className="soft">{title}</summary>
      {isOpen && (
        <JsonValue value={value} label={typeof title === "string" ? title : "the value"} />
      )}
    </details>
  );
}

function ToolCall({
  part,
  messageId,
  session,
  onPlan,
}: Omit<PartsProps, "parts" | "isLive"> & { part: Part }) {
  const name = toolNameOf(part);
  const [word, tone] = callStateOf(part);
  const { input, output, errorText } = part;
  return (
    <div className="tool-call">
      <p className="tool-line">
        <code>
          <ShownText text={visibleLine(name, 100)} />
        </code>
        <Badge tone={tone}>{visibleLine(word, 60)}</Badge>
        <span className="tool-acts">
          <CallActs part={part} messageId={messageId} session={session} onPlan={onPlan} />
        </span>
      </p>
      {input !== undefined && <Folded title="input" value={input} />}
      {output !== undefined && <Folded title="output" value={output} />}
      {typeof errorText === "string" && (
        <p className="wrong">
          <LongText text={errorText} maxChars={500} />
        </p>
      )}
    </div>
  );
}

/** Decides on a call that waits for a person. */
function CallActs({
  part,
  messageId,
  session,
  onPlan,
}: Omit<PartsProps, "parts" | "isLive"> & { part: Part }) {
  const mayAct = useMay("fleet:operate");
  const author = decidingAs(useHome());
  const call = openCallOf(part, messageId);
  if (!mayAct || !call) return null;
  const tool = visibleLine(call.tool, 60);
  if (call.signal !== undefined)
    return (
      <button
        type="button"
        className="button small"
        aria-label={`Send ${visibleLine(call.signal, 60)} to ${tool}`}
        onClick={() => onPlan(signalCallPlan(session, call, author))}
      >
        Send
      </button>
    );
  return [true, false].map((approved) => (
    <button
      key={String(approved)}
      type="button"
      className={approved ? "button small primary" : "button small"}
      aria-label={`${approved ? "Approve" : "Deny"} ${tool}`}
      onClick={() => onPlan(decidePlan(session, call, { approved, author }))}
    >
      {approved ? "Approve" : "Deny"}
    </button>
  ));
}
