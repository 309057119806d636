import { useInbox } from "flotilla/react";
import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { goToNew } from "./lib/place.ts";
import { speakAs } from "./lib/who.ts";
import { SessionRow } from "./session-row.tsx";

type SideBarProps = {
  chatId: string;
  user: string;
  /** Of the drawer, where there is little room. */
  isOpen: boolean;
  onClose: () => void;
};

export function SideBar({ chatId, user, isOpen, onClose }: SideBarProps) {
  const { sessions, status } = useInbox();
  const fresh = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (isOpen) fresh.current?.focus();
  }, [isOpen]);

  const active = sessions.filter((each) => each.status === "active");
  const archived = sessions.filter((each) => each.status === "archived");
  const row = (each: (typeof sessions)[number]) => (
    <SessionRow
      key={each.sessionId}
      item={each}
      user={user}
      isCurrent={each.sessionId === chatId}
    />
  );
  return (
    <aside id="side-bar" className="side-bar" aria-label="Conversations">
      <header>
        <p className="brand">
          <Sail /> Flotilla
        </p>
        <button className="icon only-small" aria-label="Close" onClick={onClose}>
          <Cross />
        </button>
      </header>
      <button
        ref={fresh}
        className="new"
        onClick={() => {
          goToNew();
          onClose();
        }}
      >
        <Plus /> New chat
      </button>
      <nav aria-label="Chats" onKeyDown={moveFocus}>
        {active.length > 0 ? <ul>{active.map(row)}</ul> : <Nothing isLoading={status !== "live"} />}
        {archived.length > 0 && (
          <details>
            <summary>Archived ({archived.length})</summary>
            <ul>{archived.map(row)}</ul>
          </details>
        )}
      </nav>
      <Who user={user} />
    </aside>
  );
}

function Nothing({ isLoading }: { isLoading: boolean }) {
  return <p className="nothing">{isLoading ? "Loading…" : "No chats yet. Say something!"}</p>;
}

/** Who one is on this page, and a way to be somebody else: two people are two names. */
function Who({ user }: { user: string }) {
  const [name, setName] = useState(user);
  const given = name.trim();
  return (
    <form
      className="who"
      onSubmit={(event) => {
        event.preventDefault();
        if (given !== "" && given !== user) speakAs(given);
      }}
    >
      <label htmlFor="name">You are</label>
      <input
        id="name"
        value={name}
        maxLength={40}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => setName(event.target.value)}
      />
      {given !== "" && given !== user && <button className="small">Switch</button>}
    </form>
  );
}

/** Up and down go from chat to chat, as in any list. */
function moveFocus(event: KeyboardEvent<HTMLElement>): void {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const links = [...event.currentTarget.querySelectorAll<HTMLElement>("a")];
  const at = links.indexOf(document.activeElement as HTMLElement);
  const next = links[at + (event.key === "ArrowDown" ? 1 : -1)];
  if (at === -1 || !next) return;
  event.preventDefault();
  next.focus();
}

function Sail() {
  return (
    <svg className="sail" viewBox="0 0 24 24" aria-hidden="true">
      <path d="M11 2v13H3zM13 6l8 9h-8zM2 17h20l-3 5H5z" />
    </svg>
  );
}

function Plus() {
  return (
    <svg viewBox="0 0 24 24" aria-hidden="true">
      <path d="M12 5v14M5 12h14" />
    </svg>
  );
}

function Cross() {
  return (
    <svg viewBox="0 0 24 24" aria-hidden="true">
      <path d="M6 6l12 12M18 6L6 18" />
    </svg>
  );
}
