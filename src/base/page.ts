/** The largest page of a list as JSON, in bytes. An item that is larger comes alone. */
export const maxPageBytes = 1024 * 1024;

// For the JSON around the items, and for fields that a route adds to each.
const aroundBytes = 4 * 1024;
const besideBytes = 32;

export type FittedPage<Item> = { readonly items: Item[]; readonly hasMore: boolean };

/** The first items that fit into a page, at least one. `hasMore` is true if others follow. */
export function fitPage<Item>(items: Item[], hasMore: boolean): FittedPage<Item> {
  let bytes = aroundBytes;
  for (const [at, item] of items.entries()) {
    bytes += Buffer.byteLength(JSON.stringify(item)) + besideBytes;
    if (bytes > maxPageBytes && at > 0) return { items: items.slice(0, at), hasMore: true };
  }
  return { items, hasMore };
}

/** The page of items after a cursor, in the order of their keys. */
export function pageAfter<Item>(
  items: readonly Item[],
  keyOf: (item: Item) => string,
  cursor = "",
): { items: Item[]; next: string | null } {
  const left = items.filter((item) => keyOf(item) > cursor);
  left.sort((one, other) => (keyOf(one) < keyOf(other) ? -1 : 1));
  const page = fitPage(left, false);
  return { items: page.items, next: page.hasMore ? keyOf(page.items.at(-1)!) : null };
}
