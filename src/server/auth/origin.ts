/**
 * Whether a web page may open a socket here: one of this server itself, or of a site that is configured.
 * Programs that aren't pages send no origin, and must bring credentials like everybody else.
 */
export function isOriginAllowed(
  origin: string | undefined,
  host: string | undefined,
  origins: readonly string[],
): boolean {
  if (origin === undefined || origins.includes(origin)) return true;
  return origin === `http://${host}` || origin === `https://${host}`;
}
