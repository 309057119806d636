import type { Verb } from "../../protocol/verbs.ts";

/** The pages that people go to, with the key that leads there after `g`. */
export type Place = {
  readonly to:
    | "/"
    | "/tasks"
    | "/queues"
    | "/schedules"
    | "/failures"
    | "/flows"
    | "/throttles"
    | "/sessions"
    | "/approvals"
    | "/pods"
    | "/audit";
  readonly name: string;
  readonly key: string;
  /** It is about all tenants, so that a caller of one has no use for it. */
  readonly isOfAll?: true;
  /** What a caller must be allowed to see anything there. */
  readonly needs?: Verb;
};

export const places: readonly Place[] = [
  { to: "/", name: "Overview", key: "o" },
  { to: "/tasks", name: "Tasks", key: "t" },
  { to: "/queues", name: "Queues", key: "q", isOfAll: true },
  { to: "/schedules", name: "Schedules", key: "d", isOfAll: true },
  { to: "/failures", name: "Failures", key: "f" },
  { to: "/flows", name: "Flows", key: "l" },
  { to: "/throttles", name: "Throttles", key: "r", isOfAll: true },
  { to: "/sessions", name: "Sessions", key: "s" },
  { to: "/approvals", name: "Approvals", key: "a" },
  { to: "/pods", name: "Pods", key: "p", isOfAll: true },
  { to: "/audit", name: "Audit", key: "u", isOfAll: true, needs: "admin" },
];

type Caller = { readonly verbs: readonly Verb[]; readonly tenant?: string | undefined };

/** The pages that a caller has a use for. */
export function placesFor(caller: Caller | undefined): readonly Place[] {
  const seesAll = caller?.tenant === undefined;
  const may = (verb: Verb) => caller?.verbs.includes(verb) ?? false;
  return places.filter(
    ({ isOfAll, needs }) => (seesAll || !isOfAll) && (needs === undefined || may(needs)),
  );
}

/** What keys do where these pages are, for the list of them. */
export function keyHelp(shown: readonly Place[]): readonly (readonly [string, string])[] {
  return [
    ["Ctrl K, ⌘ K", "find a page, a task's name or an id"],
    ["?", "list these keys"],
    ...shown.map(({ key, name }) => [`g ${key}`, `go to ${name}`] as const),
    ["/", "go to the filter"],
    ["j, k", "next row, row before"],
    ["x", "tick the row"],
    ["Enter", "open the row"],
  ];
}

/** What a press of a key means to the page as a whole. */
export type KeyCommand =
  | { readonly type: "palette" | "help" | "filter" }
  | { readonly type: "go"; readonly to: Place["to"] };

export type KeyPress = {
  readonly key: string;
  readonly atMs: number;
  readonly isCommand: boolean;
  /** The focus is in a field, where keys are text. */
  readonly isTyping: boolean;
};

// After it, `g` is a key like any other.
const sequenceMs = 1_500;

/** Decides what a key does where these pages are, and whether the next one follows a `g`. */
export function commandOf(
  { key, atMs, isCommand, isTyping }: KeyPress,
  goAtMs: number | undefined,
  shown: readonly Place[],
): { readonly command?: KeyCommand; readonly goAtMs?: number } {
  if (isCommand) return key.toLowerCase() === "k" ? { command: { type: "palette" } } : {};
  if (isTyping) return {};
  if (goAtMs !== undefined && atMs - goAtMs <= sequenceMs) {
    const place = shown.find((each) => each.key === key);
    if (place) return { command: { type: "go", to: place.to } };
  }
  if (key === "g") return { goAtMs: atMs };
  if (key === "?") return { command: { type: "help" } };
  if (key === "/") return { command: { type: "filter" } };
  return {};
}
