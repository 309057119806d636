const kept = "flotilla-chat-user";

/**
 * Who speaks, and whom they ask. The demo's server checks no credentials, so the page may say who it is:
 * `?user=ada`, or who it was the last time. Where users sign in, a client is given their token instead.
 */
export function whoSpeaks(): { user: string; agent: string } {
  const query = new URLSearchParams(location.search);
  const user = query.get("user")?.trim() || localStorage.getItem(kept) || "you";
  localStorage.setItem(kept, user);
  return { user, agent: query.get("agent") ?? "guide" };
}

/** Starts over as somebody else. */
export function speakAs(user: string): void {
  localStorage.setItem(kept, user);
  const here = new URL(location.href);
  here.searchParams.delete("user");
  here.hash = "";
  location.replace(here);
}
