import { conditionsIn } from "../tasks/filter.ts";

/** Values of the metadata, as they are in the address of a list of sessions. */
export type MetadataQuery = { readonly [Path in `metadata.${string}`]?: string };

const prefix = "metadata.";
const maxChars = 1_000;
const maxShownChars = 60;

/** The values of the metadata that an address has. What can't be searched for, the server refuses. */
export function metadataIn(search: Readonly<Record<string, unknown>>): MetadataQuery {
  const given = Object.entries(search).filter(
    ([name, value]) =>
      name.startsWith(prefix) &&
      typeof value === "string" &&
      value !== "" &&
      value.length <= maxChars,
  );
  return Object.fromEntries(given) as MetadataQuery;
}

/** The same as text: `ticket.id:7 plan:"two words"`. */
export function metadataText(search: Readonly<Record<string, unknown>>): string {
  return Object.entries(metadataIn(search))
    .map(([name, value = ""]) => {
      const isPlain = /^[^\s"]\S*$/.test(value);
      const text = isPlain ? value : `"${value.replaceAll(/[\\"]/g, String.raw`\$&`)}"`;
      return `${name.slice(prefix.length)}:${text}`;
    })
    .join(" ");
}

/** Understands such a text; a sentence where it can't be. */
export function parseMetadata(text: string): MetadataQuery | string {
  const { conditions, rest } = conditionsIn(text);
  const empty = conditions.find(([, value]) => value === "");
  if (empty) return `The metadata ${cut(empty[0])} needs a value after its colon.`;
  if (rest !== "")
    return `${cut(rest)} is no metadata: write a path, a colon and a value, such as ticket.id:7.`;
  // From entries, because a path may be `__proto__`, which the server refuses with a sentence.
  const named = conditions.map(([path, value]) => [withPrefix(path), value]);
  return Object.fromEntries(named) as MetadataQuery;
}

/** People may write it as it is in the address. */
function withPrefix(path: string): string {
  return path.startsWith(prefix) ? path : prefix + path;
}

function cut(text: string): string {
  return text.length > maxShownChars ? `${text.slice(0, maxShownChars)}…` : text;
}
