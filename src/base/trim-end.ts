/**
 * The text without trailing characters that match. A regular expression such as `/x+$/` would scan
 * each run again from every position, which takes minutes for a long one.
 */
export function trimEnd(text: string, isTrimmed: (character: string) => boolean): string {
  let end = text.length;
  while (end > 0 && isTrimmed(text[end - 1]!)) end--;
  return text.slice(0, end);
}
