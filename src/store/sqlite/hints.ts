import { mailListeners } from "../notifications.ts";
import type { Commits } from "./thread.ts";

// Whoever commits on and on is told of others with every commit, so the file needn't be looked at too.
const ownGapMs = 3;

/**
 * Tells our own commits from those of others. The thread that writes knows which are others', and says so
 * with every answer; it is asked where the file has changed and this process may have done that.
 */
export function createHints() {
  type Listener = (whose?: "own") => void;
  const listeners = new Set<Listener>();
  const mail = mailListeners();
  /** Whether a write of ours was under way since the last change of the file. */
  let wrote = false;
  let underWay = 0;
  /** When the thread last answered a write, or was given one after a pause. */
  let busyMs = -Infinity;
  /** Listeners were told of others' commits, which the thread has yet to see. */
  let told = false;

  const tell = (whose?: "own") => {
    for (const listener of listeners) listener(whose);
    // Which of our own writes carry letters is known, and whom they are for. Of others' it isn't.
    if (whose !== "own") mail.tell();
  };

  return {
    mail,
    subscribe(listener: Listener, mailOf?: string): () => void {
      if (mailOf !== undefined) return mail.add(mailOf, listener);
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    /** Somebody has committed. Asks the thread where it can't be told who. */
    changed(look: () => void): void {
      const surelyOthers = !wrote;
      wrote = false;
      told = surelyOthers;
      // Asked before anybody is told: what a listener then writes can't have seen less than this.
      look();
      if (surelyOthers) tell();
    },
    /** What the thread has seen by now. */
    seen({ own, others }: Commits): void {
      const known = told && !wrote;
      told = false;
      if (others && !known) tell();
      else if (own && !others) tell("own");
    },
    /** For how long the thread will tell by itself, unless somebody else keeps it waiting. */
    holdMs: (): number => busyMs + ownGapMs - performance.now(),
    around<Answer>(write: Promise<Answer>): Promise<Answer> {
      wrote = true;
      if (underWay++ === 0) busyMs = performance.now();
      return write.finally(() => {
        underWay--;
        busyMs = performance.now();
        wrote = true;
      });
    },
    close(): void {
      listeners.clear();
      mail.clear();
    },
  };
}
