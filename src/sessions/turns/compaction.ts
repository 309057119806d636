import { messageOf } from "../../base/errors.ts";
import { withFields } from "../../base/log.ts";
import { estimateMessageTokens } from "../../protocol/message.ts";
import type { Compaction, Header } from "../conversation/header.ts";
import { createAnswer } from "./answer.ts";
import {
  type AnswerBody,
  limitedBytes,
  callUrl,
  checkStatus,
  headerOf,
  isUncompressed,
  notAnAnswer,
  readAnswerBody,
  type AnswerStream,
} from "./call-url.ts";
import { AgentFailure, failureOf } from "./failure.ts";
import { answerStreamOf } from "./call-function.ts";
import { readRange } from "./history.ts";
import type { Control } from "./parts.ts";
import { readUntilAvailable, reportToOwner } from "./report.ts";
import type { TurnParts } from "./turn.ts";
import { callWithRetries } from "./call-agent.ts";
import type { AgentSpec, CompactionSpec } from "../agents/spec.ts";

// A summary must be far smaller than what it replaces.
const maxSummaryBytes = 256 * 1024;
const maxPlainBytes = 1024 * 1024;

/** Has a range of entries summarised, and stores the summary. Never rejects. */
export async function runCompaction(
  parts: TurnParts,
  header: Header,
  work: Compaction,
  control: Control,
): Promise<void> {
  const { epoch, attempt } = work;
  const made = await summarize(parts, header, work, control).catch(failureOf);
  if (control.signal.aborted) return;
  const command =
    made instanceof AgentFailure
      ? ({ type: "compaction_failed", error: { code: made.code, message: made.message } } as const)
      : ({
          type: "compaction_finished",
          parts: made,
          tokens: estimateMessageTokens(made),
        } as const);
  try {
    await reportToOwner(parts, header, { ...command, epoch, attempt }, control.signal);
  } catch (error) {
    const fields = { session: header.sessionId, epoch, attempt, error: messageOf(error) };
    parts.log.error(fields, "summary not stored");
  }
}

async function summarize(
  parts: TurnParts,
  header: Header,
  work: Compaction,
  control: Control,
): Promise<ReturnType<ReturnType<typeof createAnswer>["content"]>["parts"] | AgentFailure> {
  const { sessionId, tenant } = header;
  const { epoch, attempt, agent, toSeq } = work;
  const input = await readUntilAvailable(parts, control, async () => ({
    spec: await parts.agentOf(tenant, agent),
    range: await readRange(parts.journal, header, toSeq),
  }));
  const spec = input?.spec;
  const compaction = spec?.compaction;
  if (!input || !spec || !compaction) {
    return new AgentFailure(
      "agent_missing",
      `the agent ${JSON.stringify(agent)} has no compactor on this pod`,
    );
  }
  const { range } = input;
  const answer = createAnswer({
    name: { sessionId, epoch, attempt },
    messageId: `summary-${epoch}`,
    maxBytes: maxSummaryBytes,
    clock: parts.clock,
    live: () => {},
  });
  const failure = await callWithRetries(
    { ...parts, log: withFields(parts.log, { session: sessionId, epoch, attempt }) },
    {
      spec: { ...spec, idleTimeoutMs: compaction.deadlineMs, deadlineMs: compaction.deadlineMs },
      deadlineAtMs: undefined,
      answer,
      control,
      open: (signal, { touch }) =>
        open(parts, { spec, compaction, header, work, range }, signal, touch),
      onChunk() {},
      onWaiting() {},
    },
    spec,
  );
  if (failure) return failure;
  answer.close("finish");
  // Only text makes up the summary, not the model's reasoning.
  const texts = answer.content().parts.filter(({ type }) => type === "text");
  if (texts.some(({ text }) => typeof text === "string" && text.trim() !== "")) return texts;
  return new AgentFailure("agent_invalid", "the summary is empty");
}

type CompactionCall = {
  readonly spec: AgentSpec;
  readonly compaction: CompactionSpec;
  readonly header: Header;
  readonly work: Compaction;
  readonly range: Awaited<ReturnType<typeof readRange>>;
};

async function open(
  { network, clock, log }: TurnParts,
  { spec, compaction: { source }, header, work, range }: CompactionCall,
  signal: AbortSignal,
  touch: () => void,
): Promise<AnswerStream> {
  const { sessionId, tenant } = header;
  const { epoch, attempt, agent, toSeq } = work;
  const { messages, summary } = range;
  const before = summary !== undefined && { summary };
  if (source.type === "function") {
    const fields = { session: sessionId, agent: spec.name, epoch, attempt };
    const context = { messages, ...before, sessionId, tenant, epoch, attempt, signal };
    return answerStreamOf(await source.run({ ...context, log: withFields(log, fields) }), touch);
  }
  const flotilla = { sessionId, tenant, agent, epoch, attempt, ...before, seq: toSeq };
  const request = { id: sessionId, messages, trigger: "compact", flotilla } as const;
  return callUrl({ source, request, network, clock, signal, touch, read: readSummaryBody });
}

/** A compactor may answer like an agent, or with the summary itself as text or JSON. */
async function* readSummaryBody(answer: AnswerBody, touch: () => void): AsyncGenerator<unknown> {
  const type = headerOf(answer, "content-type")?.split(";")[0]?.trim().toLowerCase();
  if (type !== "text/plain" && type !== "application/json") {
    yield* readAnswerBody(answer, touch);
    return;
  }
  checkStatus(answer);
  if (!isUncompressed(answer)) throw notAnAnswer(answer);
  const decoder = new TextDecoder();
  let text = "";
  for await (const bytes of limitedBytes(answer, maxPlainBytes)) {
    touch();
    text += decoder.decode(bytes, { stream: true });
  }
  const summary = type === "text/plain" ? text : summaryIn(text);
  yield { type: "text-start", id: "summary" };
  yield { type: "text-delta", id: "summary", delta: summary };
  yield { type: "text-end", id: "summary" };
  yield { type: "finish" };
}

function summaryIn(json: string): string {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    value = undefined;
  }
  const found = (value as { summary?: unknown } | null | undefined)?.summary ?? value;
  if (typeof found === "string") return found;
  throw new AgentFailure("agent_invalid", 'a summary in JSON must be {"summary": "…"}');
}
