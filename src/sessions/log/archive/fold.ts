import { type Changes, type TurnStep, unlinkedFrom } from "../changes.ts";
import type { Checkpoint } from "../journal.ts";

/**
 * The changes of records that follow each other, as if one record had made them. To store what comes of it
 * leaves the same rows as to store them one after the other.
 */
export type ChangesFold = {
  /**
   * Adds the changes of the next record, unless they can't be told in one with those before: then it
   * returns false, and has added nothing.
   */
  add(changes: Changes): boolean;
  readonly changes: Changes;
};

type Header = Changes["headers"][number];
type Read = Changes["reads"][number];

/** A member of changes that isn't folded does not compile. */
type Folded = { readonly [Member in keyof Changes]-?: (changes: Changes) => void };

export function startFold(): ChangesFold {
  let entries: Changes["entries"][number][] = [];
  const headers = new Map<string, Header>();
  const members = new Map<string, Header>();
  const metadata = new Map<string, string>();
  const reads = new Map<string, Read>();
  const checkpoints = new Map<string, Checkpoint>();
  const ended = new Map<string, number>();
  const steps = new Map<string, TurnStep>();
  const stepsOver = new Map<string, Changes["stepsOver"][number]>();
  let turns: Changes["turns"][number][] = [];
  const acts: Changes["acts"][number][] = [];
  let tenants: NonNullable<Changes["tenants"]>[number][] | undefined;
  let tasks: Changes["tasks"] = [];
  const deleted = new Set<string>();

  /** In the order in which one record is stored: what is deleted goes before what comes with it. */
  const folded: Folded = {
    deleted({ deleted: gone }) {
      if (gone.length === 0) return;
      const stays = ({ sessionId }: { sessionId: string }) => !gone.includes(sessionId);
      entries = entries.filter(stays);
      turns = turns.filter(stays);
      tasks = unlinkedFrom(tasks, new Set(gone));
      for (const sessionId of gone) {
        deleted.add(sessionId);
        metadata.delete(sessionId);
        checkpoints.delete(sessionId);
        ended.delete(sessionId);
      }
      for (const [key, each] of reads) if (!stays(each)) reads.delete(key);
    },
    entries: (changes) => void entries.push(...changes.entries),
    headers(changes) {
      for (const header of changes.headers) headers.set(header.sessionId, header);
    },
    members(changes) {
      for (const header of changes.members) members.set(header.sessionId, header);
    },
    metadata(changes) {
      for (const [sessionId, text] of changes.metadata) metadata.set(sessionId, text);
    },
    reads(changes) {
      for (const read of changes.reads) {
        const key = JSON.stringify([read.sessionId, read.user]);
        if ((reads.get(key)?.seq ?? 0) < read.seq) reads.set(key, read);
      }
    },
    ended(changes) {
      for (const { sessionId, epoch } of changes.ended) {
        const known = checkpoints.get(sessionId);
        if (known && known.epoch <= epoch) checkpoints.delete(sessionId);
        ended.set(sessionId, Math.max(epoch, ended.get(sessionId) ?? 0));
      }
    },
    checkpoints(changes) {
      for (const checkpoint of changes.checkpoints) {
        const known = checkpoints.get(checkpoint.sessionId);
        if (!isLater(known, checkpoint)) checkpoints.set(checkpoint.sessionId, checkpoint);
      }
    },
    stepsOver(changes) {
      for (const turn of changes.stepsOver) {
        stepsOver.set(JSON.stringify([turn.sessionId, turn.epoch]), turn);
        for (const [key, { sessionId, epoch }] of steps) {
          if (sessionId === turn.sessionId && epoch === turn.epoch) steps.delete(key);
        }
      }
    },
    steps(changes) {
      for (const each of changes.steps) {
        const key = JSON.stringify([each.sessionId, each.epoch, each.step.key]);
        const known = steps.get(key)?.step;
        if (known && known.seq >= each.step.seq) continue;
        const forgets = each.step.forgets || known?.forgets === true;
        steps.set(key, { ...each, step: { ...each.step, forgets } });
      }
    },
    turns: (changes) => void turns.push(...changes.turns),
    acts: (changes) => void acts.push(...changes.acts),
    tenants(changes) {
      if (changes.tenants) tenants = [...(tenants ?? []), ...changes.tenants];
    },
    tasks(changes) {
      if (changes.tasks.length > 0) tasks = [...tasks, ...changes.tasks];
    },
  };

  return {
    add(changes) {
      // A user who is removed and added again has read nothing, and reads count from then on. Told in one,
      // both would be lost.
      const isTwice = ({ sessionId, users }: Header) => {
        const known = members.get(sessionId);
        if (known) return known.users.join("\0") !== users.join("\0");
        return [...reads.values()].some((each) => each.sessionId === sessionId);
      };
      if (changes.members.some(isTwice)) return false;
      for (const fold of Object.values(folded)) fold(changes);
      return true;
    },
    get changes() {
      return {
        entries,
        headers: [...headers.values()],
        members: [...members.values()],
        metadata,
        reads: [...reads.values()],
        checkpoints: [...checkpoints.values()],
        ended: [...ended].map(([sessionId, epoch]) => ({ sessionId, epoch })),
        steps: [...steps.values()],
        stepsOver: [...stepsOver.values()],
        turns,
        acts,
        tenants,
        tasks,
        deleted: [...deleted],
      };
    },
  };
}

function isLater(known: Checkpoint | undefined, than: Checkpoint): boolean {
  if (known === undefined || known.epoch < than.epoch) return false;
  return known.epoch > than.epoch || known.attempt > than.attempt;
}
