/**
 * What a server sends of the topics that a page watches. This file imports nothing, so that a page can have
 * it without the rest of the protocol.
 *
 * The data of a topic is a JSON object. Rows are fields of an object, by their keys, so that a change names
 * the row that it is of; the order of rows means nothing.
 */
export type WatchEvent =
  /** The topic as a whole. It comes first, after trouble, and where a patch would be larger. */
  | {
      readonly type: "snapshot";
      readonly topic: string;
      /** When it was read. */
      readonly atMs: number;
      readonly data: WatchData;
    }
  /** What has changed since the last event with data. */
  | {
      readonly type: "patch";
      readonly topic: string;
      readonly atMs: number;
      readonly patch: Patch;
    }
  /** It can't be read right now. What was sent before is the last that is known, until a snapshot comes. */
  | {
      readonly type: "trouble";
      readonly topic: string;
      readonly atMs: number;
      readonly code: string;
      readonly message: string;
    };

export type WatchData = Readonly<Record<string, unknown>>;

/** What has changed in an object. Lists, text and numbers are replaced as a whole. */
export type Patch = {
  /** The new values of fields. */
  readonly set?: WatchData;
  /** The names of fields that are gone. */
  readonly drop?: readonly string[];
  /** The patches of objects within. */
  readonly in?: Readonly<Record<string, Patch>>;
};

/** What makes the second of two JSON objects of the first; undefined where they are equal. */
export function patchOf(before: WatchData, after: WatchData): Patch | undefined {
  const set: [string, unknown][] = [];
  const inner: [string, Patch][] = [];
  for (const [name, value] of Object.entries(after)) {
    const known = Object.hasOwn(before, name) ? before[name] : undefined;
    if (isObject(known) && isObject(value)) {
      const patch = patchOf(known, value);
      if (patch) inner.push([name, patch]);
    } else if (!isSame(known, value)) set.push([name, value]);
  }
  const drop = Object.keys(before).filter((name) => !Object.hasOwn(after, name));
  if (set.length === 0 && inner.length === 0 && drop.length === 0) return undefined;
  // From entries, because a row may be called `__proto__`.
  return {
    ...(set.length > 0 && { set: Object.fromEntries(set) }),
    ...(drop.length > 0 && { drop }),
    ...(inner.length > 0 && { in: Object.fromEntries(inner) }),
  };
}

/** The object with its patch applied. What the patch doesn't name is the same object as before. */
export function applyPatch<Data extends WatchData>(data: Data, patch: Patch): Data {
  const fields = new Map<string, unknown>(Object.entries(data));
  for (const name of patch.drop ?? []) fields.delete(name);
  for (const [name, value] of Object.entries(patch.set ?? {})) fields.set(name, value);
  for (const [name, inner] of Object.entries(patch.in ?? {})) {
    const known = fields.get(name);
    fields.set(name, applyPatch(isObject(known) ? known : {}, inner));
  }
  return Object.fromEntries(fields) as Data;
}

function isSame(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  return Array.isArray(one) && JSON.stringify(one) === JSON.stringify(other);
}

function isObject(value: unknown): value is WatchData {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
