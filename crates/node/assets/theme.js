// Chooses the theme before the first paint: the reader's choice, or else the system's.
{
  const kept = () => {
    try {
      return localStorage.getItem('sherwood-theme');
    } catch {
      return null;
    }
  };
  const choice = kept();
  if (choice === 'light' || choice === 'dark') document.documentElement.dataset.theme = choice;
}
