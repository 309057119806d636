import { PageTitle } from "../parts/states.tsx";

export function OneSessionPage() {
  return <PageTitle name="Session">Session</PageTitle>;
}
