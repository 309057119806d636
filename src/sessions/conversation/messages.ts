import type { Command, Decision, Facts, Target, Traced } from "./command.ts";
import type { Header } from "./header.ts";
import {
  abortWork,
  type Asked,
  factsOf,
  markDue,
  startDebounce,
  startDueCompaction,
  startTurn,
  waitFor,
} from "./turns.ts";
import {
  decided,
  firstStep,
  refused,
  type Step,
  unchanged,
  withEffect,
  withEntry,
  withHeader,
} from "./decision.ts";

type Of<Type extends Command["type"]> = Extract<Command, { type: Type }>;

/** Only what a user says starts a turn, and only where there is an agent. */
export function append(header: Header, command: Of<"append">, facts: Facts): Decision {
  const { to, clientId, messageId, role, author, parts, metadata, tokens } = command;
  if (header.status === "archived") return archived();
  if (to !== undefined && !header.agents.includes(to)) return notHere(to);
  const agent = to ?? header.agents[0];
  const said = { kind: "message", role, author, messageId, parts, tokens, clientId } as const;
  const stored = withEntry(
    firstStep(header),
    metadata === undefined ? said : { ...said, metadata },
    facts,
  );
  const { lastSeq: seq } = stored.header;
  if (role !== "user" || agent === undefined) return decided(stored, { seq, done: true });

  const asked: Asked = {
    agent,
    trigger: "submit",
    replaces: null,
    messageId: facts.newId(),
    ...traceOf(command),
  };
  const next = submit(header, markDue(stored, agent, facts), asked, facts);
  return next ? decided(next, { seq, done: true }) : tooMuchWaits();
}

/** Says what became of an agent's calls, and has it go on from there. It never interrupts. */
export function toolResult(header: Header, command: Of<"tool_result">, facts: Facts): Decision {
  const { clientId, author, messageId, results, target, tokens } = command;
  if (header.status === "archived") return archived();
  if (!header.agents.includes(target.author)) return notHere(target.author);
  if (isStale(header, target)) return replaced();
  const stored = withEntry(
    firstStep(header),
    {
      kind: "tool_result",
      role: "user",
      author,
      // Not that of the message it is about, whose newest entry has to stay the agent's own.
      messageId: facts.newId(),
      results: { messageId, results },
      tokens,
      parts: [],
      clientId,
    },
    facts,
  );
  const next = continueAt(header, stored, command, facts);
  return next ? decided(next, { seq: stored.header.lastSeq, done: true }) : tooMuchWaits();
}

/** Has an answer made anew. It stores nothing by itself, so asked again meanwhile it is the same. */
export function regenerate(header: Header, command: Of<"regenerate">, facts: Facts): Decision {
  const { target } = command;
  if (header.status === "archived") return archived();
  if (!header.agents.includes(target.author)) return notHere(target.author);
  const { work, pending } = header;
  const isAsked = [...(work?.type === "turn" ? [work] : []), ...pending].some(
    (each) => each.trigger === "regenerate" && each.messageId === target.messageId,
  );
  if (isAsked) return unchanged(header, { done: true });
  if (isStale(header, target)) return replaced();
  const next = continueAt(header, firstStep(header), command, facts);
  return next ? decided(next, { done: true }) : tooMuchWaits();
}

function submit(before: Header, step: Step, asked: Asked, facts: Facts): Step | undefined {
  const { work } = before;
  const { during } = factsOf(facts, asked.agent);
  if (!work) {
    // The message waits outside of what is summed up, so that its agent sees it in full.
    const waiting = wait(before, step, asked);
    const compacting = waiting && startDueCompaction(waiting, asked.agent, facts);
    return compacting ?? begin(step, asked, during, facts);
  }
  const isOwnTurn = work.type === "turn" && work.agent === asked.agent;
  if (isOwnTurn && work.attempt === 0) {
    const { epoch } = work;
    const { lastSeq: upToSeq } = step.header;
    const moved = withHeader(step, { work: { ...work, upToSeq } });
    return withEffect(moved, { type: "debounce", epoch, upToSeq });
  }
  // A turn that is being stopped still has its answer to store, and soon will.
  if (!isOwnTurn || work.stopping || during === "queue") return wait(before, step, asked);
  return begin(abortWork(step, { keep: false }), asked, during, facts);
}

function begin(step: Step, asked: Asked, during: string, facts: Facts): Step {
  return during === "merge" ? startDebounce(step, asked) : startTurn(step, asked, facts);
}

function continueAt(
  before: Header,
  step: Step,
  command: Of<"tool_result" | "regenerate">,
  facts: Facts,
): Step | undefined {
  const { type: trigger, target } = command;
  const { author: agent, seq: replaces, messageId } = target;
  const asked: Asked = { agent, trigger, replaces, messageId, ...traceOf(command) };
  return before.work ? wait(before, step, asked) : startTurn(step, asked, facts);
}

function wait(before: Header, step: Step, asked: Asked): Step | undefined {
  const from = { fromSeq: before.lastSeq + 1, tokensBefore: before.tokens };
  const pending = waitFor(step.header, { ...asked, ...from });
  return pending && withHeader(step, { pending });
}

function traceOf({ trace }: Traced): Traced {
  return trace === undefined ? {} : { trace };
}

/** Whether an answer has been replaced since the target was looked up, which may be that one. */
function isStale({ replacedSeq = 0 }: Header, { seenSeq = Infinity }: Target): boolean {
  return replacedSeq > seenSeq;
}

function replaced(): Decision {
  const message = "an answer was made anew meanwhile: look at it, and ask again";
  return { type: "refused", code: "conflict", message, details: { replaced: true } };
}

function archived(): Decision {
  return refused("conflict", "the session is archived");
}

function notHere(agent: string): Decision {
  return refused("invalid_input", `the session has no agent ${agent}`);
}

function tooMuchWaits(): Decision {
  return refused("overloaded", "too much waits for an answer in this session already");
}
