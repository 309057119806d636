import { Link, Outlet, useLocation, useNavigate } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { api, errorSentence, type HomeFacts } from "../api.ts";
import { leaveTo, signInHref, wallClockMs } from "../browser.ts";
import type { ServerState } from "../facts/server-state.ts";
import { visibleLine } from "../facts/visible.ts";
import { announce, HomeContext, useServerState, useHome, useLive, useNotice } from "../live.ts";
import { Failed, Loading } from "../parts/states.tsx";
import { Palette } from "./palette.tsx";
import { commandOf, keyHelp, type KeyCommand, placesFor } from "./places.ts";

/** What is around every page: where to go, who is signed in, and whether the server is there. */
export function Shell() {
  // Who the caller is changes seldom, and the end of its sign-in ends the stream of topics.
  const home = useLive(["home"], api.home, { isSettled: ({ caller }) => caller !== undefined });
  // The last answer that knew the caller: the page stays as it is when the sign-in has ended.
  const known = useRef<HomeFacts>(undefined);
  if (home.data?.caller) known.current = home.data;
  const shown = known.current ?? home.data;

  if (!shown) {
    return (
      <main className="alone">
        {home.error ? (
          <Failed error={home.error} onRetry={() => void home.refetch()} />
        ) : (
          <Loading what="the dashboard" />
        )}
      </main>
    );
  }
  if (!shown.caller) return <Stranger home={shown} onRetry={() => void home.refetch()} />;
  return (
    <HomeContext value={shown}>
      <Frame />
    </HomeContext>
  );
}

/** A caller that the server doesn't know signs in, where there is a sign-in. */
function Stranger({ home, onRetry }: { home: HomeFacts; onRetry: () => void }) {
  const { signIn } = home.links;
  useEffect(() => {
    if (signIn !== undefined) leaveTo(signInHref(signIn));
  }, [signIn]);
  return (
    <main className="alone">
      {signIn === undefined ? (
        <Failed error={home.advice ?? "the server doesn't know who calls"} onRetry={onRetry} />
      ) : (
        <Loading what="the sign-in" />
      )}
    </main>
  );
}

function Frame() {
  const [open, setOpen] = useState<"palette" | "help">();
  const { caller } = useHome();
  const { pathname } = useLocation();
  const isRun = /\/runs\/[^/]+$/.test(pathname);
  const nav = useRef<HTMLElement>(null);
  useKeys(setOpen);
  // On a phone the pages are one line, of which the page in sight is a part.
  useEffect(() => {
    nav.current?.querySelector(".is-here")?.scrollIntoView({ inline: "center", block: "nearest" });
  }, [pathname]);
  return (
    <div className="app">
      <a className="skip" href="#page">
        To the page
      </a>
      <header className="side">
        <Link to="/" className="brand">
          <Sail />
          Flotilla
        </Link>
        <button type="button" className="find" onClick={() => setOpen("palette")}>
          Find … <kbd>Ctrl K</kbd>
        </button>
        <nav aria-label="Pages" ref={nav}>
          <ul>
            {placesFor(caller).map(({ to, name }) => (
              <li key={to}>
                <Link
                  to={to}
                  activeOptions={{ exact: to === "/", includeSearch: false }}
                  activeProps={{ className: "is-here" }}
                  // A run is of a flow.
                  {...(to === "/flows" && isRun && { className: "is-here" })}
                >
                  {name}
                </Link>
              </li>
            ))}
          </ul>
        </nav>
        <About onHelp={() => setOpen("help")} />
      </header>
      <div className="content">
        <Banner state={useServerState()} />
        <main id="page" tabIndex={-1}>
          <Outlet />
        </main>
        <Notice />
      </div>
      {open === "palette" && <Palette onClose={() => setOpen(undefined)} />}
      {open === "help" && <KeyList onClose={() => setOpen(undefined)} />}
    </div>
  );
}

function Sail() {
  return (
    <svg viewBox="0 0 24 24" aria-hidden="true" className="sail">
      <path d="M11 2v13H3zM13 6l8 9h-8zM2 17h20l-3 5H5z" />
    </svg>
  );
}

function About({ onHelp }: { onHelp: () => void }) {
  const { caller, version, store, links } = useHome();
  const role = caller?.role ?? (caller?.kind === "local" ? "this machine" : undefined);
  const who = [caller?.name, role, caller?.tenant].filter((each) => each !== undefined);
  return (
    <div className="about">
      <p className="soft">{who.map((each) => visibleLine(each, 40)).join(", ")}</p>
      {version !== undefined && (
        <p className="soft">
          {version} on {store === "sqlite" ? "SQLite" : "Postgres"}
        </p>
      )}
      <p>
        <button type="button" className="inline" onClick={onHelp}>
          Keys
        </button>
        {links.signIn !== undefined && <a href={signInHref(links.signIn)}>Sign out</a>}
      </p>
    </div>
  );
}

/** Says that what is shown may be old, and what to do. */
function Banner({ state }: { readonly state: ServerState }) {
  const { links } = useHome();
  switch (state.type) {
    case "online":
      return null;
    case "away":
      return (
        <p className="banner" role="alert">
          The server can&apos;t be reached. What is shown is as it was; this page goes on by itself.
        </p>
      );
    case "unable":
      return (
        <p className="banner" role="alert">
          {visibleLine(errorSentence(state.error), 300)} What is shown is as it was; this page goes
          on by itself.
        </p>
      );
    case "signed out":
      return (
        <p className="banner" role="alert">
          The sign-in has ended. What is shown is as it was.{" "}
          <a href={signInHref(links["signIn"])}>Sign in again</a>
        </p>
      );
  }
}

/** What the last act has done. */
function Notice() {
  const { text, number } = useNotice();
  return (
    <div className="notice" role="status">
      {text !== "" && (
        <p key={number}>
          {visibleLine(text, 300)}
          <button
            type="button"
            className="inline"
            aria-label="Close this message"
            onClick={() => announce("")}
          >
            close
          </button>
        </p>
      )}
    </div>
  );
}

function KeyList({ onClose }: { onClose: () => void }) {
  const { caller } = useHome();
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog ref={dialog} className="dialog" aria-label="Keys" onClose={onClose}>
      <h2>Keys</h2>
      <dl className="keys">
        {keyHelp(placesFor(caller)).map(([keys, what]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <div className="dialog-buttons">
        <button type="button" className="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </div>
    </dialog>
  );
}

function useKeys(setOpen: (what: "palette" | "help") => void): void {
  const navigate = useNavigate();
  const { caller } = useHome();
  const goAtMs = useRef<number>(undefined);
  useEffect(() => {
    const perform = (command: KeyCommand) => {
      if (command.type === "go") void navigate({ to: command.to });
      else if (command.type === "filter")
        document.querySelector<HTMLElement>("[data-filter]")?.focus();
      else setOpen(command.type);
    };
    const onKeyDown = (event: KeyboardEvent) => {
      // In a dialog keys are the dialog's.
      if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
      const press = {
        key: event.key,
        atMs: wallClockMs(),
        isCommand: event.ctrlKey || event.metaKey,
        isTyping: event.altKey || isField(event.target),
      };
      const { command, goAtMs: next } = commandOf(press, goAtMs.current, placesFor(caller));
      goAtMs.current = next;
      if (!command) return;
      event.preventDefault();
      perform(command);
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, [navigate, setOpen, caller]);
}

function isField(target: EventTarget | null): boolean {
  return (
    target instanceof Element && target.matches("input:not([type=checkbox]), select, textarea")
  );
}
