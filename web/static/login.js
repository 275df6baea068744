// The form that exchanges the token for a cookie.

// watch connects the form; entered is called after each good token.
export function watch(form, entered) {
  const field = form.querySelector('input'), button = form.querySelector('button'), message = form.querySelector('[role=alert]');

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    button.disabled = true;
    message.textContent = '';
    try {
      const answer = await fetch('login', {
        method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ token: field.value.trim() }),
      });
      if (answer.ok) {
        field.value = '';
        entered();
        return;
      }
      const told = await answer.json();
      message.textContent = answer.status === 429 ? `Too many wrong tokens. Wait ${answer.headers.get('Retry-After')} s.` : told.message;
      field.select();
    } catch {
      message.textContent = 'The relay can’t be reached.';
    } finally {
      button.disabled = false;
    }
  });
}
