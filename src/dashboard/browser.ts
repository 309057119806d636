/** The page that the dashboard runs in: its address, its clock, its chance and its network. */

/** Where the dashboard is mounted, from the address of its own files: `/`, or `/ops/` behind a proxy. */
export const mountPath = mountOf(import.meta.url);

/** The mount of a file of the dashboard. */
export function mountOf(fileUrl: string): string {
  const { pathname } = new URL(fileUrl);
  const at = pathname.lastIndexOf("/@dashboard/");
  return at < 0 ? "/" : pathname.slice(0, at + 1);
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
    redirect: "error",
  });
}

/**
 * Opens an answer that has no end, below the mount. Rejects where its headers don't come in time; then it
 * is for the caller to notice that nothing comes any more.
 */
export async function openStream(
  path: string,
  { headers, signal }: { headers: Readonly<Record<string, string>>; signal: AbortSignal },
): Promise<Response> {
  const opening = new AbortController();
  const limit = setTimeout(() => opening.abort(), answerLimitMs);
  try {
    return await fetch(mountPath + path, {
      headers,
      signal: AbortSignal.any([signal, opening.signal]),
      credentials: "same-origin",
      redirect: "error",
      cache: "no-store",
    });
  } finally {
    clearTimeout(limit);
  }
}

/** Calls back once, after so long; returns what prevents it. */
export function callLater(afterMs: number, callback: () => void): () => void {
  const timer = setTimeout(callback, afterMs);
  return () => clearTimeout(timer);
}

/** Whether the page is in sight, and calls back when that changes. */
export function watchSight(callback: (isInSight: boolean) => void): () => void {
  const listener = () => callback(!document.hidden);
  document.addEventListener("visibilitychange", listener);
  listener();
  return () => document.removeEventListener("visibilitychange", listener);
}

export function wallClockMs(): number {
  return Date.now();
}

/** Calls back every so often; returns what ends it. */
export function repeat(everyMs: number, callback: () => void): () => void {
  const timer = setInterval(callback, everyMs);
  return () => clearInterval(timer);
}

/** An id for one act, so that a click that is sent twice is one act. Also where the page isn't secure. */
export function newActId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Leads to the sign-in, and back to where the page is. */
export function signInHref(signInPath: string): string {
  const { pathname, search } = globalThis.location;
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
