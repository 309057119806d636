import { PageTitle } from "../parts/states.tsx";

export function SessionsPage() {
  return <PageTitle name="Sessions">Sessions</PageTitle>;
}
