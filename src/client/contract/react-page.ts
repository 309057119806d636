import { Window } from "happy-dom";
import { createElement, type ReactElement, StrictMode, useEffect } from "react";
import type { Root } from "react-dom/client";
import { afterAll, afterEach, beforeAll, beforeEach, expect, vi } from "vitest";
import type { Client, SocketClass } from "../index.ts";
import { FlotillaProvider } from "../react/provider.ts";

/** A page for React to render into, in this process. What React finds fault with fails the test. */
export function usePage() {
  const globals = globalThis as { window?: unknown; document?: unknown };
  const window = new Window();
  const roots: Root[] = [];
  let reactDom: typeof import("react-dom/client");

  beforeAll(async () => {
    globals.window = window;
    globals.document = window.document;
    // It looks for a page when it is loaded.
    reactDom = await import("react-dom/client");
  });
  beforeEach(() => {
    vi.spyOn(console, "error").mockImplementation(() => {});
    vi.spyOn(console, "warn").mockImplementation(() => {});
  });
  afterEach(() => {
    for (const root of roots.splice(0)) root.unmount();
    const complaints = [console.error, console.warn].flatMap((said) => vi.mocked(said).mock.calls);
    vi.restoreAllMocks();
    expect(complaints).toEqual([]);
  });
  afterAll(async () => {
    delete globals.window;
    delete globals.document;
    await window.happyDOM.close();
  });

  const container = (html = "") => {
    const element = window.document.createElement("div");
    element.innerHTML = html;
    window.document.body.append(element);
    return element;
  };
  return {
    /** Renders, strictly: every effect is begun, ended and begun again. */
    render(element: ReactElement) {
      const root = reactDom.createRoot(container() as unknown as Element);
      roots.push(root);
      const strict = (each: ReactElement) => createElement(StrictMode, null, each);
      root.render(strict(element));
      return {
        render: (next: ReactElement) => root.render(strict(next)),
        unmount: () => root.unmount(),
      };
    },
    /** Takes over what a server has rendered. */
    hydrate(html: string, element: ReactElement) {
      const at = container(html);
      roots.push(
        reactDom.hydrateRoot(at as unknown as Element, element, {
          onRecoverableError: (error) => console.error(error),
        }),
      );
      return { text: () => at.textContent };
    },
  };
}

/** A component that uses a hook, and every value that it has got of it. */
export function probe<Value>(use: () => Value) {
  const values: Value[] = [];
  let latestValue: Value | undefined;
  function Probe() {
    const value = use();
    values.push(value);
    // What is rendered isn't shown yet: who uses it sooner has something that may be thrown away.
    useEffect(() => {
      latestValue = value;
    });
    return null;
  }
  return { Probe, values, latest: () => latestValue };
}

export const withClient = (client: Client, component: () => null) =>
  createElement(FlotillaProvider, { client }, createElement(component));

/** Sockets that note what is sent over them, and how many there were. */
export function recordingSockets() {
  const sent: { type: string; session?: string }[] = [];
  const opened: WebSocket[] = [];
  class Noted extends WebSocket {
    constructor(url: string, protocols: string[]) {
      super(url, protocols);
      opened.push(this);
    }
    override send(text: string) {
      const frame = JSON.parse(text) as (typeof sent)[number];
      sent.push(...(Array.isArray(frame) ? (frame as typeof sent) : [frame]));
      super.send(text);
    }
  }
  const count = (type: string, session?: string) =>
    sent.filter((frame) => frame.type === type && (!session || frame.session === session)).length;
  return { Socket: Noted as unknown as SocketClass, opened, count };
}
