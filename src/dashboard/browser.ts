/** The page that the dashboard runs in: its address, its clock, its chance and its network. */

/** Where the dashboard is mounted, from the address of its own files: `/`, or `/ops/` behind a proxy. */
export const mountPath = mountOf(import.meta.url);

/** The mount of a file of the dashboard. */
export function mountOf(fileUrl: string): string {
  const { pathname } = new URL(fileUrl);
  const at = pathname.lastIndexOf("/@dashboard/");
  return at < 0 ? "/" : pathname.slice(0, at + 1);
}

/** Whether a page of this name can have an address: browsers take dots alone for steps in a path. */
export function hasAddress(name: string): boolean {
  return name !== "." && name !== "..";
}

// What isn't answered by then never is: a page that waits says so instead.
const answerLimitMs = 20_000;

/** Requests a path below the mount. */
export function request(path: string, init: RequestInit): Promise<Response> {
  const limit = AbortSignal.timeout(answerLimitMs);
  const signal = init.signal ? AbortSignal.any([init.signal, limit]) : limit;
  return fetch(mountPath + path, {
    ...init,
    signal,
    credentials: "same-origin",
    // A host such as Next takes the slash off the mount, or puts one behind every path.
    redirect: "follow",
  });
}

/**
 * Opens an answer that has no end, below the mount. Rejects where its headers don't come in time; then it
 * is for the caller to notice that nothing comes any more.
 */
export async function openStream(
  path: string,
  { headers = {}, signal }: { headers?: Readonly<Record<string, string>>; signal: AbortSignal },
): Promise<Response> {
  const late = new AbortController();
  const cancel = callLater(answerLimitMs, () => late.abort());
  try {
    return await fetch(mountPath + path, {
      headers: { Accept: "text/event-stream", ...headers },
      signal: AbortSignal.any([signal, late.signal]),
      credentials: "same-origin",
      redirect: "error",
      cache: "no-store",
    });
  } finally {
    cancel();
  }
}

export function wallClockMs(): number {
  return Date.now();
}

/** Calls back every so often; returns what ends it. */
export function repeat(everyMs: number, callback: () => void): () => void {
  const timer = setInterval(callback, everyMs);
  return () => clearInterval(timer);
}

/** Calls back once; returns what prevents it. */
export function callLater(ms: number, callback: () => void): () => void {
  const timer = setTimeout(callback, ms);
  return () => clearTimeout(timer);
}

/** A number from 0 to 1. */
export function chance(): number {
  return Math.random();
}

/** Whether the tab is in sight. */
export function isInSight(): boolean {
  return document.visibilityState !== "hidden";
}

/** Calls back with that now and when it changes; returns what ends it. */
export function watchSight(callback: (inSight: boolean) => void): () => void {
  const listener = () => callback(isInSight());
  document.addEventListener("visibilitychange", listener);
  listener();
  return () => document.removeEventListener("visibilitychange", listener);
}

/** An id for one act, so that a click that is sent twice is one act. Also where the page isn't secure. */
export function newActId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Leads to the sign-in, and back to where the page is. A host app signs in who opens the page again. */
export function signInHref(signInPath: string | undefined): string {
  const { pathname, search } = globalThis.location;
  if (signInPath === undefined) return pathname + search;
  const next = encodeURIComponent(pathname + search);
  return `${mountPath}${signInPath.replace(/^\//, "")}?next=${next}`;
}

export function leaveTo(href: string): void {
  globalThis.location.replace(href);
}

/** Copies a text; false where the browser doesn't let the page. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
