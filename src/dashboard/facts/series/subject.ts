/** What series of a task or of a throttle and its key are counted under. */
export function seriesSubject(kind: "task" | "throttle", name: string, part = ""): string {
  // The first space ends the name.
  const shown = name.replaceAll("%", "%25").replaceAll(" ", "%20");
  return part === "" ? `${kind}:${shown}` : `${kind}:${shown} ${part}`;
}
