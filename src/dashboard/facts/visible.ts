/** A piece of stored text: as it is, or a character that would be invisible or change how others are read. */
export type TextPiece = { readonly text: string } | { readonly hidden: string };

// Control characters but for line breaks and tabs, marks of direction, separators of lines, characters
// that are drawn as nothing, and halves of pairs. Joiners and the two marks of how an emoji is drawn stay:
// scripts and emoji need them.
const hiding =
  // oxlint-disable-next-line no-control-regex, no-misleading-character-class
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufff9-\ufffb\u2800]|(?![\u200c\u200d\ufe0e\ufe0f])\p{Default_Ignorable_Code_Point}|\p{Cs}/gu;

/** Parts a text so that nothing in it is unseen. */
export function piecesOf(text: string): TextPiece[] {
  const pieces: TextPiece[] = [];
  let from = 0;
  for (const { 0: found, index } of text.matchAll(hiding)) {
    if (index > from) pieces.push({ text: text.slice(from, index) });
    pieces.push({ hidden: nameOf(found) });
    from = index + found.length;
  }
  if (from < text.length) pieces.push({ text: text.slice(from) });
  return pieces;
}

/** The same as one line of plain text, for titles and labels. */
export function visibleLine(text: string, maxChars = 200): string {
  const short = text.length > maxChars ? `${text.slice(0, maxChars)}…` : text;
  return piecesOf(short)
    .map((piece) => ("text" in piece ? piece.text.replaceAll(/[\n\t]/g, " ") : piece.hidden))
    .join("");
}

/** The host that a text leads to, if all of it is a link of the web. */
export function linkIn(text: string): { readonly href: string; readonly host: string } | undefined {
  if (text.length > 2_000 || !/^https?:\/\/[^\s"<>]+$/i.test(text)) return undefined;
  if (!URL.canParse(text)) return undefined;
  const { protocol, href, host } = new URL(text);
  const isWeb = protocol === "http:" || protocol === "https:";
  return isWeb && host !== "" ? { href, host } : undefined;
}

function nameOf(character: string): string {
  const code = character.codePointAt(0)!;
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}
