/** How long what is asked of a session is tried, whatever keeps it from being stored. */
export const patienceMs = 15_000;

/** What a store says that is away or too busy, and that asking again may change. */
export const storeAway = ["store_busy", "store_unavailable"] as const;
