/** A member's token, as the reader's own server signs it. */
export const token: string = "";

export function show(entries: readonly unknown[], offset: string): void {
  console.log(entries.length, offset);
}

/** Who a cookie of the reader's own app is of. */
export async function userOfCookie(request: Request): Promise<string | undefined> {
  return await Promise.resolve(request.headers.get("cookie")?.split("=").at(-1));
}
