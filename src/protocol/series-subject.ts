/**
 * What is counted: a task by its name, a flow or one of its transitions, an agent, a throttle with its
 * key, a pod. As text it is `task:mail`, `flow:order`, `flow:order pay`, `throttle:openai key`; a kind
 * alone, such as `task`, stands for all of that kind together, and `other:task` for those beyond the
 * bound.
 */
export type Subject = {
  readonly kind: SubjectKind;
  /** Undefined for all of the kind. */
  readonly name?: string;
  /** The transition of a flow, or the key of a throttle. */
  readonly part?: string;
  /** True for those of the kind that have no subject of their own. */
  readonly isOther?: true;
};

export const subjectKinds = ["task", "flow", "agent", "throttle", "pod"] as const;

export type SubjectKind = (typeof subjectKinds)[number];

/** How many subjects have counts of their own in a minute or an hour; the rest is counted together. */
export const maxSubjects = 200;

const otherPrefix = "other:";

export function subjectText({ kind, name, part, isOther }: Subject): string {
  if (isOther) return otherPrefix + kind;
  if (name === undefined) return kind;
  // Names of throttles may have spaces, and the first space ends the name.
  const shown = name.replaceAll("%", "%25").replaceAll(" ", "%20");
  return part === undefined || part === "" ? `${kind}:${shown}` : `${kind}:${shown} ${part}`;
}

/** Undefined if the text names no subject. */
export function parseSubject(text: string): Subject | undefined {
  const isOther = text.startsWith(otherPrefix);
  const [first, ...rest] = (isOther ? text.slice(otherPrefix.length) : text).split(":");
  const kind = subjectKinds.find((each) => each === first);
  if (kind === undefined) return undefined;
  if (rest.length === 0) return isOther ? { kind, isOther } : { kind };
  const named = rest.join(":");
  if (isOther || named === "") return undefined;
  const space = named.indexOf(" ");
  if (space < 0) return { kind, name: spaced(named) };
  return { kind, name: spaced(named.slice(0, space)), part: named.slice(space + 1) };
}

function spaced(name: string): string {
  return name.replaceAll("%20", " ").replaceAll("%25", "%");
}

/** The subject that counts for this one where there are too many. */
export function otherOf(text: string): string {
  const kind = parseSubject(text)?.kind;
  return kind === undefined ? text : subjectText({ kind, isOther: true });
}

/** True if the subject needs none of the places: all of a kind, or the rest of it. */
export function isSummary(text: string): boolean {
  const subject = parseSubject(text);
  return subject !== undefined && subject.name === undefined;
}
