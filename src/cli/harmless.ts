/**
 * Text that others wrote, for a terminal: whatever could move the cursor, recolour the screen, turn the
 * direction of what follows or hide in it is written out instead. Lines and tabs stay.
 */
export function harmless(text: string): string {
  return text.toWellFormed().replaceAll(unsafe, (char) => {
    const code = char.codePointAt(0)!.toString(16);
    return code.length <= 2 ? `\\x${code.padStart(2, "0")}` : `\\u{${code}}`;
  });
}

// Controls but lines and tabs; marks that turn the direction; line separators; what takes no room, but
// not the joiners that words and emoji are written with; tags.
const unsafe =
  // oxlint-disable-next-line no-control-regex, no-misleading-character-class
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
