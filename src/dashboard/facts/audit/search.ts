/** The filter of the audit, as it is in the address. */
export type AuditSearch = {
  readonly actor?: string;
  readonly action?: string;
  readonly subject?: string;
  /** A time, as ISO text. */
  readonly since?: string;
  readonly until?: string;
  readonly cursor?: string;
};

// As the route has them.
const maxChars = 1_000;
const maxTimeMs = 8.64e14;
const searchNames = ["actor", "action", "subject", "since", "until", "cursor"] as const;

/** What an address says of it. Unknown fields, texts that no entry has and times that are none don't count. */
export function auditSearchIn(search: Readonly<Record<string, unknown>>): AuditSearch {
  const given = searchNames.flatMap((name) => {
    const value = search[name];
    const isText = typeof value === "string" && value !== "" && value.length <= maxChars;
    const isTime = name === "since" || name === "until";
    return isText && (!isTime || momentOf(value) !== undefined) ? [[name, value] as const] : [];
  });
  return Object.fromEntries(given);
}

/** The same as a query of the route. */
export function auditQuery({ since, until, ...rest }: AuditSearch) {
  return {
    ...rest,
    ...(since !== undefined && { sinceMs: momentOf(since) }),
    ...(until !== undefined && { untilMs: momentOf(until) }),
  };
}

/** The milliseconds of an ISO text. */
export function momentOf(text: string): number | undefined {
  const atMs = Date.parse(text);
  return atMs >= 0 && atMs <= maxTimeMs ? atMs : undefined;
}

/** A time as the browser's own field has it: local, to the minute. */
export function localMinuteText(text: string | undefined): string {
  const atMs = text === undefined ? undefined : momentOf(text);
  if (atMs === undefined) return "";
  const date = new Date(atMs);
  const two = (part: number) => String(part).padStart(2, "0");
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
  return `${day}T${two(date.getHours())}:${two(date.getMinutes())}`;
}
