import type { Command, CommandDecision, Facts } from "./command.ts";
import {
  type ForkPlace,
  type ForkStart,
  maxAgents,
  type Header,
  newHeader,
  maxUsers,
} from "./header.ts";
import { append } from "./messages.ts";
import { abortWork, continueAfterCompaction, stopRunner } from "./turns.ts";
import { endedWakes } from "./wakes.ts";
import { decided, startDraft, refuseCommand, unchanged, withHeader } from "./append.ts";

type Of<Type extends Command["type"]> = Extract<Command, { type: Type }>;

/** A repeat returns the existing session. The id of a deleted session is never used again. */
export function create(
  header: Header | undefined,
  command: Of<"create">,
  facts: Facts,
): CommandDecision {
  const { nowMs } = facts;
  const { sessionId, tenant, metadata, fork, first } = command;
  const agents = [...new Set(command.agents)];
  const users = [...new Set(command.users)];
  if (header) {
    // The members of its parent may have changed since a fork was made.
    const isAsGiven = fork ? isAt(header.parent, fork) : areSame(header.agents, agents);
    const isSame = header.tenant === tenant && isAsGiven;
    return isSame && header.status !== "deleted"
      ? unchanged(header, { duplicate: true, metadataVersion: header.metadataVersion })
      : refuseCommand(
          "conflict",
          "a session with this id exists already, or was deleted: choose another id",
        );
  }
  const wrong = tooManyOf({ agents, users }) ?? unknownOf(agents, facts);
  if (wrong) return wrong;
  const metadataVersion = metadata === null ? 0 : 1;
  const made = { sessionId, tenant, agents, users };
  const created = { ...newHeader(made, { nowMs, metadataVersion }), ...(fork && begunBy(fork)) };
  const decision = first
    ? append(created, { type: "append", ...first }, facts)
    : decided(startDraft(created), { done: true, metadataVersion });
  return metadata === null || decision.type === "refused" ? decision : { ...decision, metadata };
}

/** What a fork has of its parent. Its own turns come after all that its first entries tell of. */
function begunBy({ sessionId, atSeq, ...facts }: ForkStart): Partial<Header> {
  return { ...facts, parent: { sessionId, atSeq }, lastSeq: atSeq };
}

function isAt(one: ForkPlace | undefined, other: ForkPlace): boolean {
  return one?.sessionId === other.sessionId && one.atSeq === other.atSeq;
}

/** What was to be created with this id comes too late from now on. */
export function abandon(
  header: Header | undefined,
  { sessionId, tenant }: Of<"abandon">,
  { nowMs }: Facts,
): CommandDecision {
  if (header) return unchanged(header, { done: false });
  const taken = newHeader({ sessionId, tenant, agents: [], users: [] }, { nowMs });
  return decided(withHeader(startDraft(taken), { status: "deleted" }), { done: true });
}

/** For a fork, before anything is stored for it: what its creation would say of its agents. */
export function checkAgents(
  header: Header,
  { agents }: Of<"check_agents">,
  facts: Facts,
): CommandDecision {
  return unknownOf(agents, facts) ?? unchanged(header, { done: true });
}

/** Sets a user's read position. Only members have one. */
export function read(header: Header, { user, seq }: Of<"read">): CommandDecision {
  if (seq > header.lastSeq) {
    return refuseCommand("invalid_input", `the session has ${header.lastSeq} entries, not ${seq}`);
  }
  if (!header.users.includes(user)) return unchanged(header, { done: false });
  return { ...unchanged(header, { done: true }), read: { user, seq } };
}

export function setMetadata(header: Header, command: Of<"metadata">): CommandDecision {
  const { metadata, ifVersion } = command;
  if (ifVersion !== undefined && ifVersion !== header.metadataVersion) {
    const message = `the metadata has version ${header.metadataVersion}, not ${ifVersion}`;
    return refuseCommand("conflict", message);
  }
  const metadataVersion = header.metadataVersion + 1;
  const changed = withHeader(startDraft(header), { metadataVersion });
  return { ...decided(changed, { done: true, metadataVersion }), metadata };
}

/** An agent that leaves may finish its current turn, and gets no new requests. */
export function changeMembers(
  header: Header,
  command: Of<"members">,
  facts: Facts,
): CommandDecision {
  const { addUsers = [], removeUsers = [] } = command;
  const removed = new Set(removeUsers);
  const users = [...new Set([...header.users, ...addUsers])].filter((user) => !removed.has(user));
  const agents = [...new Set(command.agents ?? header.agents)];
  if (areSame(users, header.users) && areSame(agents, header.agents)) {
    return unchanged(header, { done: true });
  }
  const added = agents.filter((name) => !header.agents.includes(name));
  const wrong = tooManyOf({ agents, users }) ?? unknownOf(added, facts);
  return wrong ?? decided(withHeader(startDraft(header), { users, agents }), { done: true });
}

/** Stops the work in progress. Partial answers and unanswered messages are kept. */
export function archive(header: Header, facts: Facts): CommandDecision {
  if (header.status === "archived") return unchanged(header, { done: false });
  const { work } = header;
  const archived = withHeader(startDraft(header), {
    status: "archived",
    ...(header.wakes && { wakes: [] }),
    ...endedWakes(header),
  });
  if (!work) return decided(archived, { done: true });
  if (work.type === "turn") return decided(stopRunner(archived, work, facts), { done: true });
  const aborted = withHeader(abortWork(archived, { keep: false }), { work: null });
  return decided(continueAfterCompaction(aborted, facts), { done: true });
}

export function unarchive(header: Header): CommandDecision {
  if (header.status !== "archived") return unchanged(header, { done: false });
  return decided(withHeader(startDraft(header), { status: "active" }), { done: true });
}

/** Keeps only the numbers by which late commands are recognised, and the id, which stays taken. */
export function remove(header: Header): CommandDecision {
  const dropped = withHeader(abortWork(startDraft(header), { keep: false }), {
    status: "deleted",
    agents: [],
    users: [],
    work: null,
    pending: [],
    needsCompaction: false,
    preview: "",
    previewAuthor: "",
    ...(header.approvals && { approvals: { seq: header.lastSeq, calls: [] } }),
    ...(header.wakes && { wakes: [] }),
    ...(header.endedWakes && { endedWakes: [] }),
  });
  return decided(dropped, { done: true });
}

function tooManyOf({
  agents,
  users,
}: Pick<Header, "agents" | "users">): CommandDecision | undefined {
  if (agents.length > maxAgents) {
    return refuseCommand("invalid_input", `a session has at most ${maxAgents} agents`);
  }
  if (users.length > maxUsers) {
    return refuseCommand("invalid_input", `a session has at most ${maxUsers} users`);
  }
  return undefined;
}

/** An agent name that no pod knows is most likely a typo, which a caller would notice only by waiting. */
function unknownOf(agents: readonly string[], facts: Facts): CommandDecision | undefined {
  const unknown = agents.find((name) => facts.agent(name) === undefined);
  if (unknown === undefined) return undefined;
  return refuseCommand(
    "not_found",
    `there is no agent ${JSON.stringify(unknown)}: no pod that is up has it in code, and none is stored`,
  );
}

function areSame(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((each, at) => each === others[at]);
}
