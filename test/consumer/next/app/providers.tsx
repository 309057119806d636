"use client";

import { createClient } from "flotilla/client";
import { FlotillaProvider } from "flotilla/react";
import type { ReactNode } from "react";

// Made where the page is rendered, too; it connects only once a component subscribes.
export const client = createClient({ user: "ada" });

export function Providers({ children }: { children: ReactNode }) {
  return <FlotillaProvider client={client}>{children}</FlotillaProvider>;
}
