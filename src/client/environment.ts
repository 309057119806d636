import { FlotillaError } from "../base/errors.ts";
import type { Fetch, Network, SocketClass } from "./options.ts";

/** The environment: a page, a worker or Node. Its globals are read only when they are needed. */

type Target = {
  addEventListener(name: string, listener: () => void, until: { signal: AbortSignal }): void;
};

type Page = Partial<Target> & {
  readonly location?: { readonly href: string };
  readonly document?: Target & { readonly visibilityState: string };
  readonly navigator?: { readonly onLine?: boolean };
  readonly WebSocket?: SocketClass;
};

const page = () => globalThis as unknown as Page;

export const defaultFetch: Fetch = (url, init) => fetch(url, init);

export function defaultSocketClass(): SocketClass {
  const { WebSocket } = page();
  if (WebSocket) return WebSocket;
  throw new FlotillaError("unsupported", "no WebSocket here: give createClient one");
}

/** The server's URL, without a trailing slash. */
export function serverUrl(url: string | undefined): string {
  const base = page().location?.href;
  // Pages such as `about:` or `file:` don't come from a server.
  const at = base?.startsWith("http") ? base : undefined;
  try {
    let { href } = new URL(url ?? "/", at);
    // A URL without its protocol may parse as if it had another, such as `localhost:`.
    if (href.startsWith("http")) {
      while (href.endsWith("/")) href = href.slice(0, -1);
      return href;
    }
  } catch {
    // It is no URL at all.
  }
  const message = `createClient: url must be like https://example.org, not ${url}`;
  throw new FlotillaError("invalid_option", message);
}

/** Whether the page is visible. */
export function isPageVisible(): boolean {
  return page().document?.visibilityState !== "hidden";
}

/** Browsers report when the network comes and goes, and when a page is shown again. Node doesn't. */
export const defaultNetwork: Network = {
  isOnline: () => page().navigator?.onLine !== false,
  onChange(callback) {
    const { document, addEventListener } = page();
    if (!addEventListener) return () => {};
    // A window's functions throw where `this` isn't the window.
    const window = page() as Target;
    const onAwake = () => callback("awake");
    const onVisible = () => {
      if (document?.visibilityState === "visible") onAwake();
    };
    const stopped = new AbortController();
    const listen = (target: Target, name: string, listener: () => void) =>
      target.addEventListener(name, listener, stopped);
    listen(window, "online", () => callback("online"));
    listen(window, "offline", () => callback("offline"));
    listen(window, "pageshow", onAwake);
    if (document) {
      listen(document, "visibilitychange", onVisible);
      listen(document, "resume", onAwake);
    }
    return () => stopped.abort();
  },
};
