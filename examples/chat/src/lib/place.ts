import { useSyncExternalStore } from "react";

/** The chat that is shown stands in the address, so that a reload and a bookmark come back to it. */
export function useChatId(): string {
  return useSyncExternalStore(subscribe, current);
}

export function placeOf(chatId: string): string {
  return `#/${encodeURIComponent(chatId)}`;
}

export function goTo(chatId: string): void {
  location.hash = placeOf(chatId);
}

export function isAt(chatId: string): boolean {
  return current() === chatId;
}

/** A chat that isn't there yet: it is made with the first message in it. */
export function goToNew(): void {
  goTo(newId());
}

function subscribe(listener: () => void): () => void {
  window.addEventListener("hashchange", listener);
  return () => window.removeEventListener("hashchange", listener);
}

function current(): string {
  const given = /^#\/(.+)$/.exec(location.hash)?.[1];
  const chatId = given && decoded(given);
  if (chatId) return chatId;
  const fresh = newId();
  // In the place of the bare address, so that going back leaves the page.
  history.replaceState(null, "", placeOf(fresh));
  return fresh;
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `c-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
