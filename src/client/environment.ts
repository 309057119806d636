import { FlotillaError } from "../base/errors.ts";
import type { Fetch, Network, SocketClass } from "./options.ts";

/** What the program runs in: a page, a worker or Node. Nothing is looked at before it is needed. */

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
  throw new FlotillaError("unsupported", "there is no WebSocket here: give createClient one");
}

/** Where the server is, without a slash at the end. */
export function serverUrl(url: string | undefined): string {
  const base = page().location?.href;
  // Pages that come from nowhere can't be a server's.
  const at = base?.startsWith("http") ? base : undefined;
  try {
    let { href } = new URL(url ?? "/", at);
    // What lacks its protocol may look as if it had another, such as `localhost:`.
    if (href.startsWith("http")) {
      while (href.endsWith("/")) href = href.slice(0, -1);
      return href;
    }
  } catch {
    // Then it is no address at all.
  }
  const message = `createClient: url must be like https://example.org, not ${url}`;
  throw new FlotillaError("invalid_option", message);
}

/** Whether people can see what the program shows. */
export function isPageVisible(): boolean {
  return page().document?.visibilityState !== "hidden";
}

/** Browsers say when the network comes and goes, and when a page is shown again. Node says nothing. */
export const defaultNetwork: Network = {
  isOnline: () => page().navigator?.onLine !== false,
  onChange(callback) {
    const { document, addEventListener } = page();
    if (!addEventListener) return () => {};
    // A window's own functions refuse to be called for anything but the window.
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
