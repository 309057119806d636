import type { Command, Decision, Facts } from "./command.ts";
import { agentsMost, type Header, newHeader, usersMost } from "./header.ts";
import { abortWork, goOnAfterCompaction, stopped } from "./turns.ts";
import { decided, firstStep, refused, unchanged, withHeader } from "./decision.ts";

type Of<Type extends Command["type"]> = Extract<Command, { type: Type }>;

/** Asked again it gives what there is. The id of a deleted session is never used again. */
export function create(header: Header | undefined, command: Of<"create">, facts: Facts): Decision {
  const { nowMs } = facts;
  const { sessionId, tenant, metadata } = command;
  const agents = [...new Set(command.agents)];
  const users = [...new Set(command.users)];
  if (header) {
    const isSame = header.tenant === tenant && areSame(header.agents, agents);
    return isSame && header.status !== "deleted"
      ? unchanged(header, { duplicate: true, metadataVersion: header.metadataVersion })
      : refused("conflict", "there is, or was, a session with this id already");
  }
  const wrong = tooManyOf({ agents, users }) ?? unknownOf(agents, facts);
  if (wrong) return wrong;
  const metadataVersion = metadata === null ? 0 : 1;
  const made = { sessionId, tenant, agents, users };
  const created = newHeader(made, { nowMs, metadataVersion });
  const decision = decided(firstStep(created), { done: true, metadataVersion });
  return metadata === null ? decision : { ...decision, metadata };
}

/** Where a user has read to. Those who don't take part have no such place. */
export function read(header: Header, { user, seq }: Of<"read">): Decision {
  if (seq > header.lastSeq) {
    return refused("invalid_input", `the session has ${header.lastSeq} entries, not ${seq}`);
  }
  if (!header.users.includes(user)) return unchanged(header, { done: false });
  return { ...unchanged(header, { done: true }), read: { user, seq } };
}

export function setMetadata(header: Header, command: Of<"metadata">): Decision {
  const { metadata, ifVersion } = command;
  if (ifVersion !== undefined && ifVersion !== header.metadataVersion) {
    const message = `the metadata has version ${header.metadataVersion}, not ${ifVersion}`;
    return refused("conflict", message);
  }
  const metadataVersion = header.metadataVersion + 1;
  const changed = withHeader(firstStep(header), { metadataVersion });
  return { ...decided(changed, { done: true, metadataVersion }), metadata };
}

/** An agent that leaves may end the turn it is in, and is asked nothing more. */
export function changeMembers(header: Header, command: Of<"members">, facts: Facts): Decision {
  const { addUsers = [], removeUsers = [] } = command;
  const removed = new Set(removeUsers);
  const users = [...new Set([...header.users, ...addUsers])].filter((user) => !removed.has(user));
  const agents = [...new Set(command.agents ?? header.agents)];
  if (areSame(users, header.users) && areSame(agents, header.agents)) {
    return unchanged(header, { done: true });
  }
  const added = agents.filter((name) => !header.agents.includes(name));
  const wrong = tooManyOf({ agents, users }) ?? unknownOf(added, facts);
  return wrong ?? decided(withHeader(firstStep(header), { users, agents }), { done: true });
}

/** A name that nobody answers to is most likely a mistake, and would be noticed only by waiting. */
function unknownOf(agents: readonly string[], facts: Facts): Decision | undefined {
  const unknown = agents.find((name) => facts.agent(name) === undefined);
  if (unknown === undefined) return undefined;
  return refused(
    "not_found",
    `there is no agent ${JSON.stringify(unknown)}: no pod that is up has it in code, and none is stored`,
  );
}

/** Stops what is under way. What was said by then is kept, and so is what nobody will answer now. */
export function archive(header: Header, facts: Facts): Decision {
  if (header.status === "archived") return unchanged(header, { done: false });
  const { work } = header;
  const archived = withHeader(firstStep(header), { status: "archived" });
  if (!work) return decided(archived, { done: true });
  if (work.type === "turn") return decided(stopped(archived, work, facts), { done: true });
  const aborted = withHeader(abortWork(archived, { keep: false }), { work: null });
  return decided(goOnAfterCompaction(aborted, facts), { done: true });
}

export function unarchive(header: Header): Decision {
  if (header.status !== "archived") return unchanged(header, { done: false });
  return decided(withHeader(firstStep(header), { status: "active" }), { done: true });
}

/** Leaves nothing but numbers, by which what comes too late is known, and the id, which stays taken. */
export function remove(header: Header): Decision {
  const dropped = withHeader(abortWork(firstStep(header), { keep: false }), {
    status: "deleted",
    agents: [],
    users: [],
    work: null,
    pending: [],
    needsCompaction: false,
    preview: "",
    previewAuthor: "",
  });
  return decided(dropped, { done: true });
}

function tooManyOf({ agents, users }: Pick<Header, "agents" | "users">): Decision | undefined {
  if (agents.length > agentsMost) {
    return refused("invalid_input", `a session has at most ${agentsMost} agents`);
  }
  if (users.length > usersMost) {
    return refused("invalid_input", `a session has at most ${usersMost} users`);
  }
  return undefined;
}

function areSame(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((each, at) => each === others[at]);
}
