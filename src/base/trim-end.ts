/**
 * The text without the characters at its end that are among these. A regular expression such as `/x+$/`
 * would look at every run of them anew from each of its places, which takes minutes for a long one.
 */
export function trimEnd(text: string, isTrimmed: (character: string) => boolean): string {
  let end = text.length;
  while (end > 0 && isTrimmed(text[end - 1]!)) end--;
  return text.slice(0, end);
}
