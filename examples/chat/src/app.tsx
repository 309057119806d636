import type { FlotillaTransport } from "flotilla/ai-sdk";
import { useCallback, useEffect, useRef, useState } from "react";
import { Conversation } from "./conversation.tsx";
import { useChatId } from "./lib/place.ts";
import { SideBar } from "./side-bar.tsx";

/** Conversations on the left, the one that is open on the right. On a phone, the left is a drawer. */
export function App({ transport, user }: { transport: FlotillaTransport; user: string }) {
  const chatId = useChatId();
  const [isOpen, setOpen] = useState(false);
  const menu = useRef<HTMLButtonElement>(null);
  const wasOpen = useRef(false);
  const close = useCallback(() => setOpen(false), []);

  useEffect(() => setOpen(false), [chatId]);
  useEffect(() => {
    // Back to where one came from, which can be reached again only now.
    if (wasOpen.current && !isOpen) menu.current?.focus();
    wasOpen.current = isOpen;
  }, [isOpen]);
  useEffect(() => {
    if (!isOpen) return;
    const onKey = (event: KeyboardEvent) => event.key === "Escape" && close();
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [isOpen, close]);

  return (
    <div className="app" data-drawer={isOpen}>
      <a
        className="skip"
        href="#composer"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("composer")?.focus();
        }}
      >
        Skip to the message box
      </a>
      <SideBar chatId={chatId} user={user} isOpen={isOpen} onClose={close} />
      <button className="scrim" aria-label="Close the list" tabIndex={-1} onClick={close} />
      <Conversation
        key={chatId}
        chatId={chatId}
        transport={transport}
        user={user}
        isBehind={isOpen}
        menu={
          <button
            ref={menu}
            className="icon menu"
            aria-label="Conversations"
            aria-expanded={isOpen}
            aria-controls="side-bar"
            onClick={() => setOpen(true)}
          >
            <Lines />
          </button>
        }
      />
    </div>
  );
}

function Lines() {
  return (
    <svg viewBox="0 0 24 24" aria-hidden="true">
      <path d="M4 7h16M4 12h16M4 17h10" />
    </svg>
  );
}
